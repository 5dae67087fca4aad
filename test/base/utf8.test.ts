import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escapedBytes, utf8Text } from '../../base/utf8.ts';

test('decoding and encoding a text returns its bytes, whatever their characters', () => {
  for (const text of ['', 'a', '\ufeff', '\ufeff\ufeffa', '\ufffd', 'a\0b', '\ufffe', '𝄞', 'Cafe\u0301'])
    assert.equal(utf8Text(Buffer.from(text)), text);
});

test('bytes that are not UTF-8 are rejected', () => {
  // A lone byte, a cut sequence, a surrogate, an overlong zero, a number beyond the last character.
  for (const hex of ['ff', '61c3', 'e282', 'eda080', 'c080', 'f4908080'])
    assert.equal(utf8Text(Buffer.from(hex, 'hex')), null, hex);
  assert.equal(escapedBytes(Buffer.from('a\\b\xff\n', 'latin1')), 'a\\x5cb\\xff\\x0a');
});
