/** Asks before something is done that cannot be undone, or for a name that is wanted. */

import { byId, setText } from './dom.js';

/**
 * @param {object} question
 * @param {string} question.title
 * @param {string} question.text what will come of it
 * @param {string} question.act the word on the button that does it
 * @param {string | null} [question.label] of the field, where one is to be filled in
 * @param {string} [question.value] what stands in the field
 * @returns {Promise<string | null>} what was filled in, empty where nothing was to be; null where it is not to be done
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
