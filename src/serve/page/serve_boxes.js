let image = null;
function above() { $('above').textContent = (+$('score').value).toFixed(2); }
function colour(id) { return 'hsl(' + (id * 67 + 130) % 360 + ' 85% 55%)'; }
function svg(kind, attributes) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', kind);
  for (const a in attributes) e.setAttribute(a, attributes[a]);
  return e;
}
/* a box on the image and its line in the list, which point at each other */
function show(d, name, image) {
  const x = 100 * d.bbox[0] / image.width, y = 100 * d.bbox[1] / image.height;
  const percent = (100 * d.score).toFixed(1) + ' %';
  const rect = svg('rect', { x: x + '%', y: y + '%',
    width: Math.max(0, 100 * d.bbox[2] / image.width) + '%',
    height: Math.max(0, 100 * d.bbox[3] / image.height) + '%' });
  const text = svg('text', { x: Math.max(0, x) + '%', y: Math.max(0, y) + '%',
    dx: 4, dy: 15 });
  text.textContent = name + ' ' + percent;
  const li = document.createElement('li'), row = document.createElement('div');
  const title = document.createElement('b'), value = document.createElement('span');
  row.className = 'name'; title.textContent = name; value.textContent = percent;
  li.title = 'left, top, width, height: ' + d.bbox.map(v => v.toFixed(1)).join(', ');
  row.append(title, value); li.append(row);
  for (const e of [rect, li]) e.style.setProperty('--colour', colour(d.category_id));
  for (const kind of ['mouseenter', 'mouseleave', 'focus', 'blur'])
    li.addEventListener(kind, () => {
      for (const e of [rect, li])
        e.classList.toggle('over', kind === 'mouseenter' || kind === 'focus');
    });
  li.tabIndex = 0;
  return { rect, text, li };
}
async function ask(blob) {
  const mine = ++turn, begin = performance.now();
  if (blob !== image) {
    URL.revokeObjectURL($('preview').src);
    $('preview').src = URL.createObjectURL(blob);
    $('preview').hidden = false;
    $('preview').alt = blob.name ? 'your image, ' + blob.name : 'your image';
    $('hint').textContent = blob.name || '';
    $('boxes').replaceChildren(); $('found').replaceChildren();
    image = blob;
  }
  say('One moment ...');
  try {
    const r = await fetch('detect?min_score=' + $('score').value, {
      method: 'POST', body: blob,
      headers: { 'Content-Type': blob.type || 'application/octet-stream' } });
    const answer = await r.json();
    if (mine !== turn) return;
    if (!r.ok) { say('Nothing can be found: ' + answer.error, true); return; }
    const names = new Map(answer.categories.map(c => [c.id, c.name]));
    const all = answer.detections.map(d =>
      show(d, names.get(d.category_id), answer.images[0]));
    const drawn = [...all].reverse(); /* the best on top */
    $('boxes').replaceChildren(...drawn.map(a => a.rect), ...drawn.map(a => a.text));
    $('found').replaceChildren(...all.map(a => a.li));
    say((all.length || 'nothing') + ' found in ' +
      Math.round(performance.now() - begin) + ' ms');
  } catch (e) {
    if (mine === turn) say('The server does not answer.', true);
  }
}
$('score').addEventListener('input', above);
$('score').addEventListener('change', () => image && ask(image));
above();
