// The network, and its decoder if it has one, run by LiteRT in this page.

import { loadAndCompile, loadLiteRt, Tensor } from "./built/litert/core.js";

const BUILT = new URL("./built/", import.meta.url);
const FOLDER = new URL(`${document.getElementById("demo").dataset.network}/`, BUILT);

const LITERT = new URL("litert/litert_wasm_compat_internal", BUILT).href; // without the ends of its two files

/**
 * What capszoo/exporting/demo.py says of the network: its preset, classes, grid of children, files, pictures.
 *
 * And how many bytes `load` fetches, about: LiteRT's own and the network's.
 */
export async function describe() {
  const [described, litert] = await Promise.all([
    found(fetch(new URL("demo.json", FOLDER))),
    found(fetch(`${LITERT}.wasm`, { method: "HEAD" })),
  ]);
  const description = await described.json();
  const sizes = Object.values(description.files).map((file) => file.bytes);
  const bytes = sizes.reduce((sum, size) => sum + size, Number(litert.headers.get("content-length")));
  return { ...description, bytes };
}

/** The response, unless there is no such file. */
async function found(request) {
  const response = await request;
  if (!response.ok) throw new Error(`${response.url} has the status ${response.status}`);
  return response;
}

/** The address of a file of the demo. */
export const addressOf = (name) => new URL(name, FOLDER).href;

/** Loads LiteRT and all files. Errors: what says why not. */
export async function load(description) {
  if (typeof WebAssembly !== "object") throw new Error("this browser has no WebAssembly");
  const names = Object.keys(description.files);
  const [, ...files] = await Promise.all([startLiteRt(), ...names.map((name) => download(description.files[name]))]);
  const models = {};
  for (const [index, name] of names.entries())
    models[name] = await loadAndCompile(files[index], { accelerator: "wasm" });
  return new Network(description, models);
}

class Network {
  constructor(description, { network, decoder }) {
    this.imageShape = description.image_shape;
    this.classes = description.class_names.length;
    this.network = network;
    this.decoder = decoder;
  }

  /**
   * Scores [O], poses [O * D], coefficients [I * O] and activations [I] of an image [H * W * C] in [0, 1].
   *
   * And what is `seen`, where that is another image.
   */
  analyse(image) {
    return run(this.network, { images: [image, [1, ...this.imageShape]] });
  }

  /** The image [H * W * C] that the decoder makes of the poses [O * D], all but those of one class set to zero. */
  async decode(poses, shown) {
    const selection = new Float32Array(this.classes);
    selection[shown] = 1;
    const outputs = await run(this.decoder, {
      poses: [poses, [1, this.classes, poses.length / this.classes]],
      selection: [selection, [1, 1, this.classes]],
    });
    return outputs.reconstruction;
  }
}

/** The bytes of a file, which have the SHA-256 of the description. */
async function download({ name, sha256 }) {
  const digest = sha256.match(/../g).map((byte) => String.fromCharCode(parseInt(byte, 16)));
  const integrity = `sha256-${btoa(digest.join(""))}`;
  const response = await found(fetch(new URL(name, FOLDER), { integrity }));
  return new Uint8Array(await response.arrayBuffer());
}

let started = null;

/** LiteRT, started once; again where that has failed. */
function startLiteRt() {
  // LiteRT writes what it does to standard error, which would all be errors of this page.
  self.Module = { printErr: (line) => (/^(INFO|WARNING)/.test(line) ? console.debug(line) : console.error(line)) };
  // The build for every browser; that with relaxed SIMD is another 9 MB, and 10 ms faster.
  started ??= loadLiteRt(`${LITERT}.js`).catch((error) => {
    started = null;
    throw error;
  });
  return started;
}

/** The outputs of a model, by name, as Float32Arrays. LiteRT's memory is freed by hand. */
async function run(model, inputs) {
  const tensors = {};
  for (const [name, [values, shape]] of Object.entries(inputs)) tensors[name] = new Tensor(values, shape);
  const outputs = await model.run(tensors);
  const arrays = {};
  for (const [name, tensor] of Object.entries(outputs)) arrays[name] = tensor.toTypedArray().slice();
  for (const tensor of [...Object.values(tensors), ...Object.values(outputs)]) tensor.delete();
  return arrays;
}
