"""What joins verbs: from data and a model to scores, to evidence, to a run folder."""
