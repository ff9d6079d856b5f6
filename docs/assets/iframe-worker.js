// Search works on pages that are opened from disk, too. Browsers start no workers from files, so
// there the theme's search runs in a hidden frame instead, which looks like a worker from outside.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = () => {
      const held = this.waiting;
      this.waiting = null;
      held.forEach((data) => this.postMessage(data));
    };
    inside.document.body.append(script);
  }

  postMessage(data) {
    if (this.waiting) this.waiting.push(data);
    else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
