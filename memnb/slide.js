// Turns the frames of a figure: a slider below its caption changes the picture above it. No kernel, no network.
// `box` is the empty element of this output, `frames` are data URLs of pictures, `stops` their names.
(function (box, frames, stops, name, start) {
  // several views of one page, as in JupyterLab, have a box each; one that is set up already stays
  if (!box || box.firstChild) return;
  const before = Array.from(document.images).filter(
    (image) => image.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING
  );
  let picture = before.pop();
  if (!picture) {
    // each output stands in a frame of its own, as in Colab: the picture is shown again
    picture = box.appendChild(document.createElement("img"));
    picture.style.maxWidth = "100%";
  }
  const label = box.appendChild(document.createElement("label"));
  const slider = document.createElement("input");
  const reading = document.createElement("output");
  Object.assign(slider, { type: "range", min: 0, max: frames.length - 1, step: 1, value: start });
  // its arrow keys are not those of JupyterLab, which would go on to the next heading
  slider.setAttribute("data-lm-suppress-shortcuts", "true");
  Object.assign(slider.style, { width: "min(24em, 60%)", verticalAlign: "middle", margin: "0 .6em" });
  label.append(name, slider, reading);
  function turn() {
    const at = Number(slider.value);
    picture.src = frames[at];
    reading.textContent = stops[at];
    slider.setAttribute("aria-valuetext", name + " " + stops[at]);
  }
  slider.addEventListener("input", turn);
  turn();
})
