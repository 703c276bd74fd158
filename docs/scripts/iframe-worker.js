// A site that is opened as files has no web workers: the search runs in a frame of the page instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.inner.IFrameWorker = true;
      this.inner.importScripts = () => Promise.resolve();
      this.inner.postMessage = data => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = this.inner.document.createElement("script");
      script.src = url;
      this.ready = new Promise(done => { script.onload = done; });
      this.inner.document.body.appendChild(script);
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
