// Messages of a filter as they come, and a form to publish one.

import { bytes, h, name, notice, replace, title, toast, whole } from "./dom.js";
import { change, session } from "./api.js";
import { payload } from "./topics.js";

const KEPT = 200;

function line(message, time) {
  return h("li", {}, h("div", { class: "meta" }, h("time", {}, time), name(message.topic, 160),
    h("span", { class: "detail" }, bytes(message.size))), payload(message));
}

function publisher() {
  const send = async (event) => {
    event.preventDefault();
    const given = event.target.elements;
    try {
      await change("publish", { topic: given.topic.value, payload: given.payload.value, qos: Number(given.qos.value), retain: given.retain.checked });
      toast("The message is published.");
    } catch (error) {
      toast(error.message, true);
    }
  };
  return h("details", { class: "card" }, h("summary", {}, "Publish a message"), h("form", { class: "publish", onsubmit: send },
    session.mayChange ? null : notice("You have no right to change anything."),
    h("label", {}, h("span", { class: "label" }, "Topic"), h("input", { name: "topic", required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none" })),
    h("label", {}, h("span", { class: "label" }, "Payload"), h("textarea", { name: "payload", rows: 3, spellcheck: "false" })),
    h("div", { class: "row" }, h("label", { class: "inline" }, "QoS ", h("select", { name: "qos" }, [0, 1, 2].map((one) => h("option", { value: one }, String(one))))),
      h("label", { class: "inline" }, h("input", { type: "checkbox", name: "retain" }), " Retain"),
      h("button", { type: "submit", disabled: !session.mayChange }, "Publish"))));
}

export function tail(main, query) {
  const list = h("ol", { class: "messages", "aria-label": "Messages, the newest first" });
  const status = h("p", { class: "facts", role: "status" }, "Enter a filter to follow its messages.");
  const button = h("button", { type: "submit" }, "Follow");
  let source = null;
  let n = 0;

  function stop(text) {
    source?.close();
    source = null;
    button.textContent = "Follow";
    if (text) status.textContent = text;
  }

  function took(event) {
    const found = JSON.parse(event.data);
    const time = new Date().toLocaleTimeString("en-GB");
    n += found.messages.length;
    list.prepend(...found.messages.map((one) => line(one, time)).reverse());
    while (list.children.length > KEPT) list.lastChild.remove();
    status.textContent = `${whole(n)} messages${found.sampled ? ", a sample: there are more than this page shows" : ""}`;
  }

  function toggle(event) {
    event.preventDefault();
    if (source) stop("Stopped.");
    else begin(event.target.elements.filter.value.trim());
  }

  function begin(filter) {
    n = 0;
    replace(list);
    status.textContent = "Waiting for messages.";
    source = new EventSource(`api/tail?${new URLSearchParams({ filter })}`);
    source.addEventListener("messages", took);
    source.addEventListener("refused", (one) => stop(JSON.parse(one.data)));
    source.addEventListener("error", () => { if (source) stop("The broker does not serve this filter. Is it valid, and do at most 8 pages, and 4 of one user, follow messages?"); });
    button.textContent = "Stop";
  }

  main.append(title("Live tail", status), h("form", { class: "row fields", onsubmit: toggle },
    h("label", { class: "grow" }, h("span", { class: "label" }, "Filter"), h("input", {
      name: "filter", "data-search": true, required: true, value: query.get("filter") ?? "#", placeholder: "site/+/temperature", spellcheck: "false", autocomplete: "off", autocapitalize: "none",
    })), button), publisher(), list);
  if (query.get("filter")) begin(query.get("filter"));         // a link with a filter follows it
  return () => stop();
}
