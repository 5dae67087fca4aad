/** Anchors find code by its structure, and not by its layout or names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { earlierClient, earlierRelease } from '../cluster/earlier-release.ts';
import { type Anchor, anchoredSource } from './anchor.ts';

const SOURCE = `
export class Register {
  #promised: number = 0;

  take(ballot: number): boolean {
    if (ballot < this.#promised) return false; // an older one
    this.#promised = ballot;
    return true;
  }

  give(ballot: number): boolean {
    if (ballot < this.#promised) return false;
    return this.take(ballot);
  }
}
`;
const REFUSES: Anchor = {
  in: 'Register.take',
  find: '$asked < this.#promised',
  replace: '$asked <= this.#promised',
};

function changed(source: string, ...anchors: Anchor[]): string {
  return anchoredSource(source, anchors, 'register.ts').replace(/\s+/g, ' ');
}

test('an expression of a function is replaced, whatever its variables are called', () => {
  assert.match(changed(SOURCE, REFUSES), /take\(ballot \) \{ if \(ballot <= this.#promised\) return false/);
  const renamed = SOURCE.replaceAll('ballot', 'offer').replace('offer < this', 'offer\n      < this');
  assert.match(changed(renamed, REFUSES), /if \(offer <= this.#promised\) return false/);
});

test('a statement is removed', () => {
  const gone = changed(SOURCE, { in: 'Register.take', find: 'this.#promised = $ballot;', replace: '' });
  assert.ok(!gone.includes('this.#promised = ballot'));
});

test('equal placeholders match equal expressions', () => {
  const twice = { find: '$one + $one', replace: '2 * $one' };
  assert.equal(changed('const sum = a.b + a.b;', twice), 'const sum = 2 * a.b;');
  assert.throws(() => changed('const sum = a.b + a.c;', twice), /occurs 0 times in register.ts, not once/);
});

test('several changes of one source are made together', () => {
  const stays = { in: 'Register.give', find: 'this.take($ballot)', replace: 'true' };
  const both = changed(SOURCE, REFUSES, stays);
  assert.ok(both.includes('<= this.#promised') && both.includes('return true; } }'));
});

test('a place that is missing, or there twice, is an error that names it', () => {
  assert.throws(
    () => changed(SOURCE, { ...REFUSES, in: 'Register.keep' }),
    /occurs 0 times in Register.keep of register.ts/,
  );
  const { in: _, ...anywhere } = REFUSES;
  assert.throws(() => changed(SOURCE, anywhere), /occurs 2 times in register.ts, not once/);
  assert.throws(() => changed(SOURCE, { find: 'a; b;', replace: '' }), /is not one expression or statement/);
});

test('the changes that make an earlier release of this one find their places in its code', () => {
  assert.ok('NODE_OPTIONS' in earlierRelease() && 'NODE_OPTIONS' in earlierClient());
});
