// The demo page: what is drawn or chosen goes through the network, and what comes out is shown.

import { addressOf, describe, load } from "./network.js";
import { coefficientMaps, paintImage, paintMap, scaleOfColours, showChildren, showLengths } from "./paint.js";
import { Pen } from "./pen.js";
import { prepared } from "./prepare.js";

const LARGEST = 0.25; // offset of a pose's dimension, as in Figure 4 of Sabour et al. 2017

const part = (name) => document.getElementById(`demo-${name}`);
const say = (text) => (part("status").textContent = text);
const words = document.getElementById("demo").dataset; // what the page calls its pictures and scores

class Page {
  constructor(description) {
    this.description = description;
    this.names = description.class_names;
    this.wanted = null; // what gives the image that was drawn or chosen last
    this.state = null; // the network's outputs, which class is shown
    this.analyseLatest = oneAtATime(() => this.analyse());
    this.decodeLatest = oneAtATime(() => this.decode());
    if (part("canvas")) this.pen = new Pen(part("canvas"), part("cursor"), () => this.update(() => this.drawn()));
    part("clear")?.addEventListener("click", () => this.clear());
    part("reset")?.addEventListener("click", () => busyUntil(this.show(this.state.shown)));
    part("scale").style.backgroundImage = scaleOfColours;
    this.addPictures();
    this.addLengths();
    part("preset").textContent = `${description.preset} (${description.paper}): ${description.measured}.`;
    this.clear();
  }

  drawn() {
    return prepared(this.pen.ink(), this.pen.side, this.description.image_shape[0]);
  }

  clear() {
    this.pen?.clear();
    this.wanted = this.state = null;
    showLengths(part("lengths"), this.names.map(() => 0), this.names, -1, -1, words.score);
    part("result").hidden = true;
    const first = this.network ? "" : ` The first one loads ${megabytes(this.description.bytes)}.`;
    say(`${words.invitation}${first}`);
  }

  /** The network gets the image that `wanted`, a function, gives by the time it is free. */
  update(wanted) {
    this.wanted = wanted;
    busyUntil(this.analyseLatest());
  }

  async analyse() {
    if (!this.network) {
      say("Loading the network ...");
      this.network = await load(this.description);
    }
    const image = this.wanted?.();
    if (!image) return; // cleared while the network was loading
    const outputs = { seen: image, ...(await this.network.analyse(image)) };
    if (!this.wanted) return;
    const winner = outputs.scores.indexOf(Math.max(...outputs.scores));
    const maps = coefficientMaps(outputs, this.description.grid, this.names.length);
    this.state = { outputs, winner, maps };
    part("largest").textContent = Math.max(...maps).toFixed(1);
    paintImage(part("input"), outputs.seen, this.description.seen_shape);
    part("result").hidden = false;
    const score = outputs.scores[winner].toFixed(3);
    say(`The most active capsule is that of ${this.names[winner]}: ${words.score} ${score}.`);
    await this.show(winner);
  }

  /** Shows the capsule of one class, its pose as the network gives it. */
  async show(shown) {
    const { outputs, winner, maps } = Object.assign(this.state, { shown });
    const name = this.names[shown];
    showLengths(part("lengths"), outputs.scores, this.names, winner, shown, words.score);
    paintMap(part("map"), outputs.seen, maps, shown, this.description);
    showChildren(part("children"), outputs, shown, this.description);
    document.querySelectorAll(".demo-shown").forEach((element) => (element.textContent = name));
    if (!this.network.decoder) return;
    part("reconstruction").setAttribute("aria-label", `What the decoder makes of the capsule of ${name}`);
    this.setSliders(outputs.poses.length / this.names.length);
    await this.decodeLatest();
  }

  async decode() {
    if (!this.state) return;
    const { outputs, shown } = this.state;
    const poses = outputs.poses.slice();
    const sliders = part("sliders").querySelectorAll("input");
    sliders.forEach((slider, dimension) => (poses[shown * sliders.length + dimension] += Number(slider.value)));
    paintImage(part("reconstruction"), await this.network.decode(poses, shown), this.description.seen_shape);
  }

  /** All offsets zero; makes the sliders where there are none. */
  setSliders(count) {
    const sliders = part("sliders");
    if (sliders.children.length !== count)
      sliders.replaceChildren(...Array.from({ length: count }, (_, index) => this.slider(index + 1)));
    sliders.querySelectorAll("input").forEach((slider) => (slider.value = 0));
    sliders.querySelectorAll("output").forEach((output) => (output.value = "0.00"));
  }

  slider(dimension) {
    const label = document.createElement("label");
    label.innerHTML = `<span>${dimension}</span><input type="range"><output></output>`;
    const [input, output] = [label.querySelector("input"), label.querySelector("output")];
    Object.assign(input, { min: -LARGEST, max: LARGEST, step: 0.01 });
    input.setAttribute("aria-label", `Offset of dimension ${dimension}`);
    input.addEventListener("input", () => {
      output.value = Number(input.value).toFixed(2);
      busyUntil(this.decodeLatest());
    });
    return label;
  }

  addPictures() {
    for (const path of this.description.pictures) {
      const picture = Object.assign(new Image(), { src: addressOf(path), alt: "" });
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const name = path.split("/").pop().split(".")[0];
      button.setAttribute("aria-label", `${words.each} ${name.replace("_", ", ")}`);
      button.dataset.picture = name;
      button.append(picture);
      button.addEventListener("click", () => busyUntil(this.choose(picture)));
      part("pictures").append(button);
    }
  }

  async choose(picture) {
    await picture.decode();
    this.pen?.show(picture);
    const pixels = pixelsOf(picture, this.description.image_shape);
    this.update(() => pixels);
  }

  addLengths() {
    this.names.forEach((name, index) => {
      const row = Object.assign(document.createElement("button"), { type: "button" });
      row.innerHTML = `<span>${name}</span><span class="demo-bar"><span class="demo-fill"></span></span>
        <span class="demo-number"></span>`;
      row.addEventListener("click", () => this.state && busyUntil(this.show(index)));
      part("lengths").append(row);
    });
  }
}

/** `task` as a function that is never run twice at a time: while it runs, only the latest call waits. */
function oneAtATime(task) {
  let [running, waiting] = [null, null];
  async function run() {
    try {
      while (waiting) {
        const inputs = waiting;
        waiting = null;
        await task(...inputs);
      }
    } finally {
      running = null;
    }
  }
  return (...inputs) => {
    waiting = inputs;
    return (running ??= run());
  };
}

/** A grey picture of one view or of several side by side: Float32Array [height * width * views] in [0, 1]. */
function pixelsOf(picture, [height, width, views]) {
  const canvas = Object.assign(document.createElement("canvas"), { width: width * views, height });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const pixels = context.getImageData(0, 0, width * views, height).data;
  return Float32Array.from({ length: height * width * views }, (_, index) => {
    const [place, view] = [Math.floor(index / views), index % views];
    const [row, column] = [Math.floor(place / width), place % width];
    return pixels[4 * ((row * views + view) * width + column)] / 255;
  });
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;

function refuse(error) {
  say(`The demo cannot run here: ${error.message || "LiteRT did not load"}.`);
}

let works = 0;

/** Says that the page is busy until `work`, a promise, and all others are done; and what went wrong. */
async function busyUntil(work) {
  const busy = (change) => document.getElementById("demo").setAttribute("aria-busy", (works += change) > 0);
  busy(1);
  await work.catch(refuse);
  busy(-1);
}

busyUntil(
  describe().then((description) => {
    new Page(description);
    part("parts").hidden = false;
  }),
);
