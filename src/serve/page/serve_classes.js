function bar(c) {
  const percent = (100 * c.probability).toFixed(1) + ' %';
  const li = document.createElement('li'), row = document.createElement('div');
  const name = document.createElement('b'), value = document.createElement('span');
  const track = document.createElement('div'), fill = document.createElement('div');
  row.className = 'name'; track.className = 'track'; fill.className = 'fill';
  name.textContent = c.name; value.textContent = percent;
  track.setAttribute('aria-hidden', 'true');
  fill.style.width = 100 * c.probability + '%';
  row.append(name, value); track.append(fill); li.append(row, track);
  return li;
}
async function ask(blob) {
  const mine = ++turn, begin = performance.now();
  URL.revokeObjectURL($('preview').src);
  $('preview').src = URL.createObjectURL(blob);
  $('preview').hidden = false;
  $('preview').alt = blob.name ? 'your image, ' + blob.name : 'your image';
  $('hint').textContent = blob.name || '';
  $('classes').replaceChildren();
  say('One moment ...');
  try {
    const r = await fetch('classify', { method: 'POST', body: blob,
      headers: { 'Content-Type': blob.type || 'application/octet-stream' } });
    const answer = await r.json();
    if (mine !== turn) return;
    if (!r.ok) { say('It cannot be classified: ' + answer.error, true); return; }
    $('classes').replaceChildren(...answer.classes.map(bar));
    say((answer.classes.length ? 'in ' : 'No class reaches the threshold; in ') +
        Math.round(performance.now() - begin) + ' ms');
  } catch (e) {
    if (mine === turn) say('The server does not answer.', true);
  }
}
