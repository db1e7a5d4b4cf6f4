'use strict';
const $ = id => document.getElementById(id);
let turn = 0;
function say(text, isBad) {
  $('status').textContent = text;
  $('status').className = isBad ? 'error' : 'hint';
}
