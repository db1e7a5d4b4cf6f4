/*
 * serve_page.c -- the pages for trying a picture in a browser: each one document, nothing else is
 * loaded
 *
 * They post what was chosen, dropped or pasted.  A classifier's draws the probabilities as bars, a
 * detector's the boxes on the picture, as SVG in shares of its size.  /?demo posts a drawn disc by
 * itself, which is how the pages are tested.
 */
#include "inference/detector.h"
#include "serve/kind.h"

/* clang-format off */

/* --- what both have --------------------------------------------------------------------------- */

static const char style[] =
    "<!doctype html>\n"
    "<html lang='en'>\n"
    "<head>\n"
    "<meta charset='utf-8'>\n"
    "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
    "<title>Tandem</title>\n"
    "<style>\n"
    ":root { color-scheme: light dark; --back: #f6f6f3; --card: #fff; --ink: #1d1f21; "
    "--soft: #5c6168;\n"
    "  --line: #d5d7d3; --bar: #2f6f5e; --bad: #a3261b; }\n"
    "@media (prefers-color-scheme: dark) { :root { --back: #17191b; --card: #212427; "
    "--ink: #e9eaeb;\n"
    "  --soft: #a3a9b0; --line: #3a3f44; --bar: #5fb39b; --bad: #ff8a7a; } }\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0; background: var(--back); color: var(--ink);\n"
    "  font: 16px/1.5 system-ui, 'Segoe UI', Roboto, sans-serif; }\n"
    "main { max-width: 52rem; margin: 0 auto; padding: 2.5rem 1.25rem; }\n"
    "h1 { font-size: 1.5rem; margin: 0; }\n"
    "header p { color: var(--soft); margin: .15rem 0 1.5rem; }\n"
    ".grid { display: grid; gap: 1.25rem; grid-template-columns: 1fr 1fr; }\n"
    "@media (max-width: 40rem) { .grid { grid-template-columns: 1fr; } }\n"
    ".card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;\n"
    "  padding: 1rem; min-height: 18rem; }\n"
    ".drop { display: flex; flex-direction: column; align-items: center; justify-content: center;\n"
    "  gap: .75rem; text-align: center; border-style: dashed; border-width: 2px; cursor: pointer;\n"
    "  position: relative; }\n"
    ".drop.over, .drop:focus-within { border-color: var(--bar); }\n"
    ".drop:focus-within { outline: 3px solid var(--bar); outline-offset: 2px; }\n"
    ".drop img { max-width: 100%; max-height: 20rem; border-radius: 8px; }\n"
    ".drop input { position: absolute; inset: 0; opacity: 0; cursor: pointer; }\n"
    ".hint { color: var(--soft); }\n"
    ".button { background: var(--bar); color: var(--card); border-radius: 8px; padding: "
    ".45rem 1rem;\n"
    "  font-weight: 600; }\n"
    "ol { list-style: none; margin: 0; padding: 0; }\n"
    "li { margin: 0 0 .8rem; }\n"
    ".name { display: flex; justify-content: space-between; gap: 1rem; }\n"
    ".name b { font-weight: 600; overflow-wrap: anywhere; }\n"
    ".name span { font-variant-numeric: tabular-nums; color: var(--soft); }\n"
    ".track { height: .6rem; border-radius: .3rem; background: var(--line); overflow: hidden; }\n"
    ".fill { height: 100%; min-width: 2px; background: var(--bar); border-radius: .3rem; }\n"
    "h2 { font-size: 1rem; margin: 0 0 .5rem; }\n"
    "#status { margin-bottom: .9rem; }\n"
    ".error { color: var(--bad); }\n"
    "footer { margin-top: 1.5rem; color: var(--soft); font-size: .9rem; }\n"
    "footer a { color: inherit; }\n";

static const char drop[] =
    "<div class='grid'>\n"
    "<label class='card drop' id='drop'>\n"
    "<img id='preview' alt='' hidden>\n"
    "<span class='hint' id='hint'>Drop a JPEG or PNG here</span>\n"
    "<span class='button'>Choose a file</span>\n"
    "<input type='file' id='file' accept='image/jpeg,image/png' \n"
    "  aria-label='Choose a picture'>\n"
    "</label>\n";

/* the rest of the document up to the first function of its own */
static const char foot[] =
    "<footer>The picture goes to this server only. <a href='metrics'>Metrics</a>,\n"
    "<a href='v2'>API</a>,\n"
    "<a href='#' id='demo'>try a drawn one</a></footer>\n"
    "</main>\n"
    "<script>\n"
    "'use strict';\n"
    "const $ = id => document.getElementById(id);\n"
    "let turn = 0;\n"
    "function say(text, isBad) {\n"
    "  $('status').textContent = text;\n"
    "  $('status').className = isBad ? 'error' : 'hint';\n"
    "}\n";

static const char tail[] =
    "/* a picture without a file: a disc on a plain ground */\n"
    "function drawn() {\n"
    "  const c = document.createElement('canvas');\n"
    "  c.width = c.height = 256;\n"
    "  const g = c.getContext('2d');\n"
    "  g.fillStyle = '#2b4a6f'; g.fillRect(0, 0, 256, 256);\n"
    "  g.fillStyle = '#e8c547'; g.beginPath(); g.arc(128, 128, 84, 0, 7); g.fill();\n"
    "  c.toBlob(b => ask(b), 'image/png');\n"
    "}\n"
    "$('file').addEventListener('change', () => $('file').files[0] && "
    "ask($('file').files[0]));\n"
    "$('demo').addEventListener('click', e => { e.preventDefault(); drawn(); });\n"
    "for (const kind of ['dragenter', 'dragover'])\n"
    "  $('drop').addEventListener(kind, e => { e.preventDefault(); "
    "$('drop').classList.add('over'); });\n"
    "$('drop').addEventListener('dragleave', () => $('drop').classList.remove('over'));\n"
    "$('drop').addEventListener('drop', e => {\n"
    "  e.preventDefault();\n"
    "  $('drop').classList.remove('over');\n"
    "  if (e.dataTransfer.files[0]) ask(e.dataTransfer.files[0]);\n"
    "});\n"
    "document.addEventListener('paste', e => {\n"
    "  const f = [...e.clipboardData.files].find(x => x.type.startsWith('image/'));\n"
    "  if (f) ask(f);\n"
    "});\n"
    "if (new URLSearchParams(location.search).has('demo')) drawn();\n"
    "</script>\n"
    "</body>\n"
    "</html>\n";

/* --- classes ---------------------------------------------------------------------------------- */

static const char classes_top[] =
    "</style>\n"
    "</head>\n"
    "<body>\n"
    "<main>\n"
    "<header><h1>What is on this picture?</h1><p>A network answers, on this machine.</p>"
    "</header>\n";

static const char classes_answer[] =
    "<section class='card' aria-labelledby='answer'>\n"
    "<h2 id='answer'>Answer</h2>\n"
    "<div id='status' class='hint' role='status' aria-live='polite'>The classes appear "
    "here.</div>\n"
    "<ol id='classes'></ol>\n"
    "</section>\n"
    "</div>\n";

static const char classes_script[] =
    "function bar(c) {\n"
    "  const percent = (100 * c.probability).toFixed(1) + ' %';\n"
    "  const li = document.createElement('li'), row = document.createElement('div');\n"
    "  const name = document.createElement('b'), value = document.createElement('span');\n"
    "  const track = document.createElement('div'), fill = document.createElement('div');\n"
    "  row.className = 'name'; track.className = 'track'; fill.className = 'fill';\n"
    "  name.textContent = c.name; value.textContent = percent;\n"
    "  track.setAttribute('aria-hidden', 'true');\n"
    "  fill.style.width = 100 * c.probability + '%';\n"
    "  row.append(name, value); track.append(fill); li.append(row, track);\n"
    "  return li;\n"
    "}\n"
    "async function ask(blob) {\n"
    "  const mine = ++turn, begin = performance.now();\n"
    "  URL.revokeObjectURL($('preview').src);\n"
    "  $('preview').src = URL.createObjectURL(blob);\n"
    "  $('preview').hidden = false;\n"
    "  $('preview').alt = blob.name ? 'your picture, ' + blob.name : 'your picture';\n"
    "  $('hint').textContent = blob.name || '';\n"
    "  $('classes').replaceChildren();\n"
    "  say('One moment ...');\n"
    "  try {\n"
    "    const r = await fetch('classify', { method: 'POST', body: blob,\n"
    "      headers: { 'Content-Type': blob.type || 'application/octet-stream' } });\n"
    "    const answer = await r.json();\n"
    "    if (mine !== turn) return;\n"
    "    if (!r.ok) { say('It cannot be classified: ' + answer.error, true); return; }\n"
    "    $('classes').replaceChildren(...answer.classes.map(bar));\n"
    "    say('in ' + Math.round(performance.now() - begin) + ' ms');\n"
    "  } catch (e) {\n"
    "    if (mine === turn) say('The server does not answer.', true);\n"
    "  }\n"
    "}\n";

/* --- boxes ------------------------------------------------------------------------------------ */

static const char boxes_style[] =
    ".grid { grid-template-columns: 2fr 1fr; align-items: start; }\n"
    "@media (max-width: 40rem) { .grid { grid-template-columns: 1fr; } }\n"
    ".shot { position: relative; line-height: 0; max-width: 100%; }\n"
    ".drop .shot img { max-height: 32rem; border-radius: 0; }\n"
    ".shot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: hidden; }\n"
    "rect { fill: none; stroke-width: 2; stroke: var(--colour); }\n"
    "rect.over { stroke-width: 4; fill: var(--colour); fill-opacity: .25; }\n"
    "text { font-size: 13px; font-weight: 600; fill: #fff; stroke: #000; stroke-width: 3px;\n"
    "  paint-order: stroke; }\n"
    "#found { max-height: 28rem; overflow: auto; }\n"
    "li { margin: 0 0 .3rem; }\n"
    "li .name { border-left: .5rem solid var(--colour); padding-left: .5rem; }\n"
    "li.over, li:focus { outline: 2px solid var(--bar); }\n"
    "#score { width: 100%; accent-color: var(--bar); }\n";

static const char boxes_top[] =
    "</style>\n"
    "</head>\n"
    "<body>\n"
    "<main>\n"
    "<header><h1>What is where on this picture?</h1><p>A network answers, on this machine.</p>"
    "</header>\n";

static const char boxes_drop[] =
    "<div class='grid'>\n"
    "<label class='card drop' id='drop'>\n"
    "<span class='shot'><img id='preview' alt='' hidden><svg id='boxes' aria-hidden='true'></svg>"
    "</span>\n"
    "<span class='hint' id='hint'>Drop a JPEG or PNG here</span>\n"
    "<span class='button'>Choose a file</span>\n"
    "<input type='file' id='file' accept='image/jpeg,image/png' \n"
    "  aria-label='Choose a picture'>\n"
    "</label>\n";

static const char boxes_answer[] =
    "<section class='card' aria-labelledby='answer'>\n"
    "<h2 id='answer'>Answer</h2>\n"
    "<div id='status' class='hint' role='status' aria-live='polite'>What is found appears "
    "here.</div>\n"
    "<label>Scores above <output id='above'></output>\n"
    "<input type='range' id='score' min='0' max='0.99' step='0.01'></label>\n"
    "<ol id='found'></ol>\n"
    "</section>\n"
    "</div>\n";

static const char boxes_script[] =
    "let picture = null;\n"
    "function above() { $('above').textContent = (+$('score').value).toFixed(2); }\n"
    "function colour(id) { return 'hsl(' + (id * 67 + 130) % 360 + ' 85% 55%)'; }\n"
    "function svg(kind, attributes) {\n"
    "  const e = document.createElementNS('http://www.w3.org/2000/svg', kind);\n"
    "  for (const a in attributes) e.setAttribute(a, attributes[a]);\n"
    "  return e;\n"
    "}\n"
    "/* a box on the picture and its line in the list, which point at each other */\n"
    "function show(d, name, image) {\n"
    "  const x = 100 * d.bbox[0] / image.width, y = 100 * d.bbox[1] / image.height;\n"
    "  const percent = (100 * d.score).toFixed(1) + ' %';\n"
    "  const rect = svg('rect', { x: x + '%', y: y + '%',\n"
    "    width: Math.max(0, 100 * d.bbox[2] / image.width) + '%',\n"
    "    height: Math.max(0, 100 * d.bbox[3] / image.height) + '%' });\n"
    "  const text = svg('text', { x: Math.max(0, x) + '%', y: Math.max(0, y) + '%',\n"
    "    dx: 4, dy: 15 });\n"
    "  text.textContent = name + ' ' + percent;\n"
    "  const li = document.createElement('li'), row = document.createElement('div');\n"
    "  const title = document.createElement('b'), value = document.createElement('span');\n"
    "  row.className = 'name'; title.textContent = name; value.textContent = percent;\n"
    "  li.title = 'left, top, width, height: ' + d.bbox.map(v => v.toFixed(1)).join(', ');\n"
    "  row.append(title, value); li.append(row);\n"
    "  for (const e of [rect, li]) e.style.setProperty('--colour', colour(d.category_id));\n"
    "  for (const kind of ['mouseenter', 'mouseleave', 'focus', 'blur'])\n"
    "    li.addEventListener(kind, () => {\n"
    "      for (const e of [rect, li])\n"
    "        e.classList.toggle('over', kind === 'mouseenter' || kind === 'focus');\n"
    "    });\n"
    "  li.tabIndex = 0;\n"
    "  return { rect, text, li };\n"
    "}\n"
    "async function ask(blob) {\n"
    "  const mine = ++turn, begin = performance.now();\n"
    "  if (blob !== picture) {\n"
    "    URL.revokeObjectURL($('preview').src);\n"
    "    $('preview').src = URL.createObjectURL(blob);\n"
    "    $('preview').hidden = false;\n"
    "    $('preview').alt = blob.name ? 'your picture, ' + blob.name : 'your picture';\n"
    "    $('hint').textContent = blob.name || '';\n"
    "    $('boxes').replaceChildren(); $('found').replaceChildren();\n"
    "    picture = blob;\n"
    "  }\n"
    "  say('One moment ...');\n"
    "  try {\n"
    "    const r = await fetch('detect?min_score=' + $('score').value, {\n"
    "      method: 'POST', body: blob,\n"
    "      headers: { 'Content-Type': blob.type || 'application/octet-stream' } });\n"
    "    const answer = await r.json();\n"
    "    if (mine !== turn) return;\n"
    "    if (!r.ok) { say('Nothing can be found: ' + answer.error, true); return; }\n"
    "    const names = new Map(answer.categories.map(c => [c.id, c.name]));\n"
    "    const all = answer.detections.map(d =>\n"
    "      show(d, names.get(d.category_id), answer.images[0]));\n"
    "    const drawn = [...all].reverse(); /* the best on top */\n"
    "    $('boxes').replaceChildren(...drawn.map(a => a.rect), ...drawn.map(a => a.text));\n"
    "    $('found').replaceChildren(...all.map(a => a.li));\n"
    "    say((all.length || 'nothing') + ' found in ' +\n"
    "      Math.round(performance.now() - begin) + ' ms');\n"
    "  } catch (e) {\n"
    "    if (mine === turn) say('The server does not answer.', true);\n"
    "  }\n"
    "}\n"
    "$('score').addEventListener('input', above);\n"
    "$('score').addEventListener('change', () => picture && ask(picture));\n"
    "above();\n";
/* clang-format on */

/* --- documents -------------------------------------------------------------------------------- */

void td_page_of_classes(const td_service *s, td_text *out)
{
    (void)s;
    td_text_add(out, "%s%s%s%s%s%s%s", style, classes_top, drop, classes_answer, foot,
                classes_script, tail);
}

/* boxes lie on the picture as the network saw it, which may be as it is stored */
void td_page_of_boxes(const td_service *s, td_text *out)
{
    const td_nms_opts nms = td_boxes_nms_shown(&s->boxes, s->transform.detector);
    td_text_add(out, "%s%s", style, boxes_style);
    if (s->transform.ignore_orientation)
        td_text_add(out, "#preview { image-orientation: none; }\n");
    td_text_add(out, "%s%s%s%s", boxes_top, boxes_drop, boxes_answer, foot);
    td_text_add(out, "$('score').value = %g;\n", nms.score_min);
    td_text_add(out, "%s%s", boxes_script, tail);
}
