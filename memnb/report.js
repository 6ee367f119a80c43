// memnb report: sorts tables, filters claims, opens what is folded. The page is complete without it.
'use strict';
const all = (css, from = document) => [...from.querySelectorAll(css)];

// --- sorting: a button in each head; numbers before words, gaps last ---
const key = cell => (cell.dataset.sort ?? cell.textContent).trim();
const number = text => {
  const m = /^[-+\u2212]?[\d.,]*\d(?:e[-+]?\d+)?(?=$|\s|%|\/|\()/i.exec(text);
  return m ? parseFloat(m[0].replace(/,/g, '').replace('\u2212', '-')) : NaN;
};
const words = new Intl.Collator('en', {numeric: true}).compare;
const empty = text => ['', '-', '\u2013', '~', 'nan', 'none', 'not asked'].includes(text.toLowerCase());

function order(a, b) {
  const x = number(a), y = number(b);
  if (!isNaN(x) && !isNaN(y)) return x - y;
  if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
  return words(a, b);
}

function sort(th) {
  const table = th.closest('table'), body = table.tBodies[0], at = th.cellIndex;
  const up = th.getAttribute('aria-sort') !== 'ascending';
  const rows = [...body.rows].map((row, i) => ({row, i, text: row.cells[at] ? key(row.cells[at]) : ''}));
  rows.sort((a, b) => {
    const last = empty(a.text) - empty(b.text);
    return last || (up ? 1 : -1) * order(a.text, b.text) || a.i - b.i;
  });
  all('th[aria-sort]', table).forEach(x => x.removeAttribute('aria-sort'));
  th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  body.append(...rows.map(r => r.row));
}

for (const th of all('table.sort thead th')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...th.childNodes);
  if (!button.textContent.trim()) button.setAttribute('aria-label', 'sort');
  th.append(button);
  button.addEventListener('click', () => sort(th));
}

// --- claims by verdict ---
const show = all('button[data-show]');
for (const button of show) button.addEventListener('click', () => {
  const kind = button.dataset.show;
  show.forEach(b => b.setAttribute('aria-pressed', b === button));
  for (const row of all('tr[data-has]')) {
    row.hidden = !!kind && !row.dataset.has.split(' ').includes(kind);
    const folded = row.closest('details.rest');
    if (folded && kind && !row.hidden) folded.open = true;
  }
});
for (const button of all('button[data-open]')) button.addEventListener('click', () => {
  const folded = all('.claims details'), open = folded.some(d => !d.open);
  folded.forEach(d => { d.open = open; });
  button.textContent = open ? 'close all evidence' : 'open all evidence';
});
all('.tools').forEach(tools => { tools.hidden = false; });

// --- a link into something folded opens it; print opens all and folds again ---
function reveal() {
  let id = '';
  try { id = decodeURIComponent(location.hash.slice(1)); } catch (e) { return; }
  const target = id && document.getElementById(id), folded = target && target.closest('details');
  if (folded && !folded.open) { folded.open = true; target.scrollIntoView(); }
}
addEventListener('hashchange', reveal);
reveal();
let opened = [];
addEventListener('beforeprint', () => {
  opened = all('details:not([open])');
  opened.forEach(d => { d.open = true; });
});
addEventListener('afterprint', () => opened.forEach(d => { d.open = false; }));
