/* an image without a file: a disc on a plain ground */
function drawn() {
  const c = document.createElement('canvas');
  c.width = c.height = 256;
  const g = c.getContext('2d');
  g.fillStyle = '#2b4a6f'; g.fillRect(0, 0, 256, 256);
  g.fillStyle = '#e8c547'; g.beginPath(); g.arc(128, 128, 84, 0, 7); g.fill();
  c.toBlob(b => ask(b), 'image/png');
}
$('file').addEventListener('change', () => $('file').files[0] && ask($('file').files[0]));
$('demo').addEventListener('click', e => { e.preventDefault(); drawn(); });
for (const kind of ['dragenter', 'dragover'])
  $('drop').addEventListener(kind, e => { e.preventDefault(); $('drop').classList.add('over'); });
$('drop').addEventListener('dragleave', () => $('drop').classList.remove('over'));
$('drop').addEventListener('drop', e => {
  e.preventDefault();
  $('drop').classList.remove('over');
  if (e.dataTransfer.files[0]) ask(e.dataTransfer.files[0]);
});
document.addEventListener('paste', e => {
  const f = [...e.clipboardData.files].find(x => x.type.startsWith('image/'));
  if (f) ask(f);
});
if (new URLSearchParams(location.search).has('demo')) drawn();
