
// --- sliders: one stop is shown, its name beside the handle; without a script all are ---
for (const box of document.querySelectorAll('[data-slider]')) {
  const stops = [...box.querySelectorAll('.stop')], range = box.querySelector('input'), name = box.querySelector('output');
  const move = () => {
    stops.forEach((stop, i) => { stop.hidden = i !== +range.value; });
    name.textContent = stops[range.value].dataset.at;
    range.setAttribute('aria-valuetext', name.textContent);
  };
  box.classList.add('sliding');
  box.querySelector('.move').hidden = false;
  range.addEventListener('input', move);
  move();
}
