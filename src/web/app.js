// Starts the document: tabs, theme, key, the live feed; and each page when it is first shown.
import { apiKey, getJson, onKeyWanted, setApiKey } from "./lib/api.js";
import { h, setText } from "./lib/dom.js";
import { Feed } from "./lib/feed.js";
import { tokensPerSecond } from "./lib/format.js";
import { Pace } from "./lib/pace.js";
import { Rates } from "./lib/rates.js";
import { nextTheme, theme } from "./lib/theme.js";
import { Recorder } from "./experts/recording.js";

const kPages = ["chat", "experts", "range", "machine"];
const kToastMs = 6000;
const modelListeners = new Set();
const byId = (id) => document.getElementById(id);

// What pages share: the feed, what it tells over time, the last answers' routing, and each other.
const app = {
  feed: new Feed(),
  rates: new Rates(),
  pace: new Pace(),
  recorder: new Recorder(),
  pages: {},
  modelId: null, // of the model that is served, or that was last
  rangeMap: null,
  show,
  toast,
  // Calls back when another model is served than before: what a page knows of the former one is void.
  onModel: (callback) => modelListeners.add(callback),
  // The range map, asked for once and again after a new one was built; null while there is none (204: a browser
  // writes each 404 into its console as an error).
  async loadRange(again = false) {
    if (app.rangeMap && !again) return app.rangeMap;
    const { modelId } = app;
    const map = await getJson("wader/range").catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    // Asked of a model that is gone meanwhile: ask this one.
    return modelId === app.modelId ? (app.rangeMap = map) : app.loadRange();
  },
};

function servedModel(id) {
  if (typeof id !== "string" || id === app.modelId) return;
  const first = app.modelId === null;
  app.modelId = id;
  if (first) return;
  app.rangeMap = null;
  app.rates.clear();
  for (const callback of modelListeners) callback(id);
}

function toast(text) {
  const node = h("div", { class: "toast" }, text);
  byId("toasts").append(node);
  setTimeout(() => node.remove(), kToastMs);
}

// The first page's styles are in the document, before its first paint; the others' come with the page.
function loadStyle(name) {
  const href = `app/${name}/${name}.css`;
  if (document.querySelector(`link[href="${href}"]`)) return null;
  return new Promise((done, failed) => {
    const link = h("link", { rel: "stylesheet", href });
    link.addEventListener("load", done);
    link.addEventListener("error", () => failed(new Error(`${href} did not come`)));
    document.head.append(link);
  });
}

async function openPage(name) {
  if (app.pages[name]) return app.pages[name];
  // Literal names, so that every module a page can load is seen by whoever reads this.
  const load = {
    chat: () => import("./chat/chat_page.js"),
    experts: () => import("./experts/experts_page.js"),
    range: () => import("./range/range_page.js"),
    machine: () => import("./machine/machine_page.js"),
  };
  const [module] = await Promise.all([load[name](), loadStyle(name)]);
  return (app.pages[name] ??= module.createPage(byId(name), app));
}

async function show(name, options) {
  for (const page of kPages) {
    const tab = byId(`tab-${page}`);
    tab.setAttribute("aria-selected", String(page === name));
    tab.tabIndex = page === name ? 0 : -1;
    byId(page).hidden = page !== name;
    if (page !== name) app.pages[page]?.hide?.();
  }
  if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  document.title = name === "chat" ? "Wader" : `${byId(`tab-${name}`).textContent} · Wader`;
  try {
    const page = await openPage(name);
    if (!byId(name).hidden) page.show?.(options);
  } catch (error) {
    toast(`This page could not be opened: ${error.message}`);
    throw error;
  }
}

function startTabs() {
  const tabs = kPages.map((page) => byId(`tab-${page}`));
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => show(kPages[i]));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = (to + tabs.length) % tabs.length;
      tabs[next].focus();
      show(kPages[next]);
    });
  });
  const fromHash = () => {
    const name = location.hash.slice(1);
    return kPages.includes(name) ? name : null;
  };
  addEventListener("hashchange", () => fromHash() && show(fromHash()));
  show(fromHash() ?? "chat");
}

function startTheme() {
  const button = byId("theme-button");
  const label = () => {
    const text = `Theme: ${{ auto: "as the system", light: "light", dark: "dark" }[theme()]}`;
    button.setAttribute("aria-label", text);
    button.title = text;
  };
  button.addEventListener("click", () => {
    nextTheme();
    label();
  });
  label();
}

function startKey() {
  const dialog = byId("key-dialog");
  let asked = false; // once for each key: who closes the dialog does not want it again with the next request
  const open = (why) => {
    if (dialog.open) return;
    if (why) setText(byId("key-why"), why);
    byId("key-input").value = apiKey();
    dialog.showModal();
  };
  byId("key-button").addEventListener("click", () => open());
  byId("key-cancel").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "save") return;
    dialog.returnValue = "";
    setApiKey(byId("key-input").value.trim());
    asked = false;
    app.feed.restart();
  });
  onKeyWanted(() => {
    if (asked) return;
    asked = true;
    open("This server wants a key. It is kept in this browser and sent to this server only.");
  });
}

function startFeed() {
  const { feed, rates, recorder } = app;
  const live = byId("live");
  const label = {
    connecting: "Connecting",
    live: "Ready",
    loading: "Loading",
    offline: "Offline",
    denied: "Key wanted",
    absent: "No live view",
  };
  const update = () => {
    const last = rates.last();
    const busy = feed.state === "live" && last && last.running > 0;
    live.dataset.state = busy ? "busy" : feed.state;
    const text =
      busy && last.decodeRate > 0 ? tokensPerSecond(last.decodeRate) : busy ? "Working" : label[feed.state];
    setText(byId("live-text"), text);
    byId("bar").classList.toggle("loading", feed.loading !== null);
    const name = feed.loading ?? app.modelId ?? "";
    setText(byId("model-name"), name);
    byId("model-name").title = name;
  };
  feed.on("state", update);
  feed.on("facts", (facts) => {
    servedModel(facts.model.id);
    app.pace.take(facts, location.hostname);
    rates.push(performance.now() / 1000, facts);
    update();
  });
  feed.on("stats", (stats) => {
    rates.push(performance.now() / 1000, stats);
    update();
  });
  feed.on("hello", (hello) => {
    recorder.begin(hello); // before the pages hear of it: they take the shape from it
    servedModel(hello.model);
    update();
  });
  let loading = null; // the last such event comes again with each connection: only what is seen to begin is told
  feed.on("model", ({ state, name, error }) => {
    const seen = loading === name;
    loading = state === "loading" ? name : null;
    if (seen && state === "ready") toast(`${name} is loaded.`);
    if (seen && state === "failed")
      toast(`${name} could not be loaded: ${error ?? "the server does not say why"}`);
  });
  feed.on("pass", (pass) => {
    app.pace.pass();
    recorder.take(pass);
  });
  feed.on("range", (range) => {
    if (range.state === "done") app.loadRange(true).catch(() => {});
  });
  feed.start();
}

app.pace.watch();
startTheme();
startKey();
startFeed();
startTabs();
