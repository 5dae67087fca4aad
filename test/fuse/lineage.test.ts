import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContentVersion } from '../../fuse/backend.ts';
import { Lineage } from '../../fuse/contents/lineage.ts';

/** `E.S`, of the epoch E. */
function version(text: string): ContentVersion {
  const [epoch = 0, seq = 0] = text.split('.').map(Number);
  return { epoch, seq };
}

/**
 * From version 1.5 on. `A>B`: an own change of A, which became B; `>B`: one of which that is not known; `=V`: told to be of version V.
 * Then what it has.
 */
const cases: readonly { readonly what: string; readonly events: string; readonly has: string }[] = [
  { what: 'nothing', events: '', has: '1.5' },
  { what: 'own changes in their order', events: '1.5>1.6 1.6>1.7', has: '1.7' },
  { what: 'numbers that others were given to what is no change', events: '1.5>1.8 1.8>1.11', has: '1.11' },
  { what: 'answers in another order', events: '1.7>1.9 1.6>1.7 1.5>1.6', has: '1.9' },
  { what: 'an answer that is missing', events: '1.6>1.7 1.7>1.8', has: '1.5' },
  { what: 'the next epoch', events: '1.5>1.6 1.6>2.2', has: '2.2' },
  { what: 'a change made elsewhere between', events: '1.5>1.6 1.7>1.8', has: '1.6' },
  { what: 'a change made elsewhere first', events: '1.6>1.7', has: '1.5' },
  { what: 'an own change that is told once more', events: '1.5>1.6 >1.6', has: '1.6' },
  { what: 'an own change of which nobody knows what it has changed', events: '>1.6 1.6>1.7', has: '1.5' },
  { what: 'being told of the change made elsewhere', events: '1.6>1.7 =1.6', has: '1.6' },
  { what: 'an own change behind what it was told', events: '1.6>1.7 =1.7 1.7>1.9', has: '1.9' },
  { what: 'an answer of before what it was told', events: '=1.9 1.5>1.6', has: '1.9' },
  { what: 'being told what it has', events: '1.7>1.8 =1.5 1.5>1.7', has: '1.8' },
];

for (const { what, events, has } of cases) {
  test(`a lineage knows what it has after ${what}`, () => {
    const lineage = new Lineage(version('1.5'));
    for (const event of events.split(' ').filter((one) => one !== '')) {
      const [before = '', contents = ''] = event.split('>');
      if (event.startsWith('=')) lineage.answered(version(event.slice(1)));
      else
        lineage.changed({
          contents: version(contents),
          ...(before === '' ? {} : { before: version(before) }),
        });
    }
    assert.ok(lineage.is(version(has)));
  });
}

test('a lineage says whether an own change, and all before it, are known to be its own', () => {
  const lineage = new Lineage(version('1.5'));
  const changed = (before: string, contents: string) =>
    lineage.changed({ before: version(before), contents: version(contents) });
  assert.deepEqual(
    [changed('1.6', '1.7'), changed('1.5', '1.6'), changed('1.8', '1.9')],
    [false, true, false],
  );
  assert.deepEqual([lineage.answered(version('1.7')), lineage.answered(version('1.9'))], [false, true]);
});

test('a lineage does not keep what can follow nothing any more', () => {
  const lineage = new Lineage(version('1.5'));
  for (let seq = 7; seq < 1_000; seq++)
    lineage.changed({ before: version(`1.${seq}`), contents: version(`1.${seq + 1}`) });
  // Were they kept, this one would lead to the last of them.
  lineage.changed({ before: version('1.5'), contents: version('1.7') });
  assert.ok(lineage.is(version('1.7')));
});
