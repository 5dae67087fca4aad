/** Asks for a confirmation, or for a name. */

import { byId, setText } from './dom.js';

/**
 * @param {object} question
 * @param {string} question.title
 * @param {string} question.text the consequence
 * @param {string} question.act label of the button that confirms
 * @param {string | null} [question.label] of the input field, if there is one
 * @param {string} [question.value] initial value of the field
 * @returns {Promise<string | null>} the field's value, empty without a field; null if the user cancels
 */
export function ask({ title, text, act, label = null, value = '' }) {
  const dialog = byId('ask-dialog');
  const input = byId('ask-input');
  setText(byId('ask-title'), title);
  setText(byId('ask-text'), text);
  setText(byId('ask-yes'), act);
  setText(byId('ask-label'), label ?? '');
  byId('ask-field').hidden = label === null;
  input.value = value;
  dialog.returnValue = '';
  dialog.showModal();
  if (label === null) byId('ask-no').focus();
  else input.select();
  return new Promise((resolve) => {
    dialog.addEventListener(
      'close',
      () => resolve(dialog.returnValue === 'yes' ? input.value.trim() : null),
      {
        once: true,
      },
    );
  });
}
