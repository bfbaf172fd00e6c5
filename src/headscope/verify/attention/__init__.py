"""Does a mask pick heads that look at the answer: `places`, `reading` attention, `evidence`."""
