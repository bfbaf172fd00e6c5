// Browsers start no workers for pages that are opened as files. There the search runs in a hidden
// frame instead, behind what the theme uses of a worker: postMessage, onmessage, onerror, terminate.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    onmessage = null;
    onerror = null;
    onmessageerror = null;

    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><body></body>";
      this.frame = frame;
      this.ready = new Promise((started, failed) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.tell("message", { data: structuredClone(data) });
          const code = inside.document.createElement("script");
          code.src = new URL(script, location.href).href;
          code.addEventListener("load", started);
          code.addEventListener("error", failed);
          inside.document.body.append(code);
        });
      });
      this.ready.catch(() => this.tell("error", {}));
      document.body.append(frame);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.ready.then(
        () => {
          const inside = this.frame.contentWindow;
          inside?.dispatchEvent(new inside.MessageEvent("message", { data: copy }));
        },
        () => {}, // the error was told when the script could not be loaded
      );
    }

    terminate() {
      this.frame.remove();
    }

    tell(kind, about) {
      // Later, as a worker's messages come: whoever made this may not listen yet.
      setTimeout(() => {
        const event = new MessageEvent(kind, about);
        this.dispatchEvent(event);
        this[`on${kind}`]?.(event);
      });
    }
  };
}
