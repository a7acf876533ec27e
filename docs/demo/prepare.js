// A drawing as an image of MNIST (LeCun et al. 1998).

/**
 * The ink scaled so that the longer side of its bounding box is `box` pixels, its centre of mass in the middle.
 *
 * ink: Float32Array [side * side] in [0, 1]. Returns a Float32Array [size * size] in [0, 1], or null without ink.
 * Each pixel of the result is the mean of the ink in the square that it covers.
 */
export function prepared(ink, side, size = 28, box = 20) {
  const measured = measure(ink, side);
  if (!measured) return null;
  const pixel = Math.max(measured.width, measured.height) / box; // its side, in pixels of the drawing
  const columns = overlaps(measured.x, pixel, side, size);
  const rows = overlaps(measured.y, pixel, side, size);
  // [side, side] -> [side, size] -> [size, size]
  const narrowed = new Float32Array(side * size);
  for (let y = 0; y < side; y++)
    for (let j = 0; j < size; j++)
      for (const [x, share] of columns[j]) narrowed[y * size + j] += share * ink[y * side + x];
  const image = new Float32Array(size * size);
  for (let i = 0; i < size; i++)
    for (const [y, share] of rows[i])
      for (let j = 0; j < size; j++) image[i * size + j] += share * narrowed[y * size + j];
  return image.map((value) => Math.min(value, 1));
}

/** Width and height of the bounding box, and the centre of mass; null without ink. */
function measure(ink, side) {
  let [left, right, top, bottom] = [side, -1, side, -1];
  let [total, x, y] = [0, 0, 0];
  ink.forEach((value, index) => {
    if (value <= 0) return;
    const column = index % side;
    const row = (index - column) / side;
    [left, right] = [Math.min(left, column), Math.max(right, column)];
    [top, bottom] = [Math.min(top, row), Math.max(bottom, row)];
    total += value;
    x += value * (column + 0.5);
    y += value * (row + 0.5);
  });
  if (!total) return null;
  return { width: right - left + 1, height: bottom - top + 1, x: x / total, y: y / total };
}

/** For each of `size` pixels about `centre`: the pixels of the drawing that it covers, and their shares in it. */
function overlaps(centre, pixel, side, size) {
  return Array.from({ length: size }, (_, index) => {
    const from = centre + (index - size / 2) * pixel;
    const found = [];
    for (let x = Math.max(0, Math.floor(from)); x < Math.min(side, from + pixel); x++)
      found.push([x, (Math.min(x + 1, from + pixel) - Math.max(x, from)) / pixel]);
    return found;
  });
}
