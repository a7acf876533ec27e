// What the page shows of a network's outputs.

/**
 * The first view of an image [height * width * views] in grey, a pixel of the canvas for each of its own.
 *
 * From black at 0 to white at 1; a standardised image, which has no black and white of its own, from its least value to
 * its largest.
 */
export function paintImage(canvas, image, [height, width, views]) {
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  const [least, largest] = [Math.min(0, ...image), Math.max(1, ...image)];
  for (let index = 0; index < height * width; index++) {
    const level = (255 * (image[index * views] - least)) / (largest - least);
    pixels.data.set([level, level, level, 255], 4 * index);
  }
  context.putImageData(pixels, 0, 0);
}

/**
 * sum over types t of a_hwt * c_hwtj at each position: Float32Array [rows * columns * classes].
 *
 * As capszoo.visualize.coefficient_maps. a: activations [I], c: coefficients [I * O]; types are the fastest axis of I.
 */
export function coefficientMaps({ activations, coefficients }, [rows, columns, types], classes) {
  const maps = new Float32Array(rows * columns * classes);
  activations.forEach((activation, child) => {
    const position = Math.floor(child / types);
    for (let j = 0; j < classes; j++)
      maps[position * classes + j] += activation * coefficients[child * classes + j];
  });
  return maps;
}

const COLOURS = [[20, 20, 90], [190, 50, 90], [255, 220, 60]]; // of a map: zero, half, the largest value

/** A colour of the scale, for a value in [0, 1]. */
function colour(value) {
  const place = value * (COLOURS.length - 1);
  const below = Math.min(Math.floor(place), COLOURS.length - 2);
  const mixed = COLOURS[below].map((part, i) => part + (place - below) * (COLOURS[below + 1][i] - part));
  return `rgb(${mixed.map(Math.round).join(" ")} / 75%)`;
}

/** The map of the class `shown` over the image, a square about the centre of each position's receptive field. */
export function paintMap(canvas, image, maps, shown, description) {
  const width = description.seen_shape[1];
  const small = document.createElement("canvas");
  paintImage(small, image, description.seen_shape);
  const context = canvas.getContext("2d");
  const scale = canvas.width / width;
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  const { rows, columns } = description.centres;
  const spacing = rows[1] - rows[0];
  const classes = description.class_names.length;
  const largest = Math.max(...maps); // of all classes: one scale
  rows.forEach((y, i) =>
    columns.forEach((x, j) => {
      context.fillStyle = colour(maps[(i * columns.length + j) * classes + shown] / largest);
      // A pixel's centre lies half a pixel from its edge.
      const [left, top] = [x, y].map((centre) => (centre + 0.5 - spacing / 2) * scale);
      context.fillRect(left, top, spacing * scale, spacing * scale);
    }),
  );
}

/** The colours of a map as a background. */
export const scaleOfColours = `linear-gradient(to right, ${[0, 0.5, 1].map(colour).join(", ")})`;

/** A row for each class: a button that chooses it, with the score of its capsule, which is called `called`. */
export function showLengths(list, scores, names, winner, shown, called) {
  [...list.children].forEach((row, index) => {
    const length = scores[index];
    row.dataset.length = length;
    row.setAttribute("aria-pressed", index === shown);
    row.setAttribute("aria-label", `Class ${names[index]}: ${called} ${length.toFixed(3)}`);
    row.classList.toggle("demo-winner", index === winner);
    row.querySelector(".demo-fill").style.width = `${100 * length}%`;
    row.querySelector(".demo-number").textContent = length.toFixed(3);
  });
}

/** The children that send most to the class `shown`, as rows of a table. */
export function showChildren(body, { activations, coefficients }, shown, description, count = 5) {
  const [, columns, types] = description.grid;
  const classes = description.class_names.length;
  const share = (child) => coefficients[child * classes + shown];
  const order = [...activations.keys()].sort((a, b) => activations[b] * share(b) - activations[a] * share(a));
  body.replaceChildren(
    ...order.slice(0, count).map((child) => {
      const position = Math.floor(child / types);
      const place = [Math.floor(position / columns) + 1, (position % columns) + 1, (child % types) + 1];
      const row = document.createElement("tr");
      for (const text of [...place, activations[child].toFixed(2), share(child).toFixed(2)])
        row.insertCell().textContent = text;
      return row;
    }),
  );
}
