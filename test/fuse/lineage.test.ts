import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContentVersion } from '../../fuse/backend.ts';
import { Lineage } from '../../fuse/contents/lineage.ts';

/** `E.S`: epoch E, sequence number S. */
function version(text: string): ContentVersion {
  const [epoch = 0, seq = 0] = text.split('.').map(Number);
  return { epoch, seq };
}

/**
 * All start at version 1.5. `A>B`: a change by this mount from A to B; `>B`: one without the version before; `=V`: an
 * answer of version V. `has` is the version that the lineage then has.
 */
const cases: readonly { readonly what: string; readonly events: string; readonly has: string }[] = [
  { what: 'no events', events: '', has: '1.5' },
  { what: 'its own changes in order', events: '1.5>1.6 1.6>1.7', has: '1.7' },
  { what: 'its own changes with gaps between their numbers', events: '1.5>1.8 1.8>1.11', has: '1.11' },
  { what: 'its own changes answered in another order', events: '1.7>1.9 1.6>1.7 1.5>1.6', has: '1.9' },
  { what: 'its own changes except the first', events: '1.6>1.7 1.7>1.8', has: '1.5' },
  { what: 'a change in the next epoch', events: '1.5>1.6 1.6>2.2', has: '2.2' },
  { what: 'another mount’s change between two of its own', events: '1.5>1.6 1.7>1.8', has: '1.6' },
  { what: 'another mount’s change before its own', events: '1.6>1.7', has: '1.5' },
  { what: 'a repeated answer to its own change', events: '1.5>1.6 >1.6', has: '1.6' },
  { what: 'a change without the version before', events: '>1.6 1.6>1.7', has: '1.5' },
  { what: 'an answer with the version of another mount’s change', events: '1.6>1.7 =1.6', has: '1.6' },
  { what: 'its own change after an answered version', events: '1.6>1.7 =1.7 1.7>1.9', has: '1.9' },
  { what: 'its own earlier change after an answered version', events: '=1.9 1.5>1.6', has: '1.9' },
  { what: 'an answer with the version that it has', events: '1.7>1.8 =1.5 1.5>1.7', has: '1.8' },
];

for (const { what, events, has } of cases) {
  test(`a lineage has the right version after ${what}`, () => {
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

test('changed and answered return whether the version follows from the mount’s own changes', () => {
  const lineage = new Lineage(version('1.5'));
  const changed = (before: string, contents: string) =>
    lineage.changed({ before: version(before), contents: version(contents) });
  assert.deepEqual(
    [changed('1.6', '1.7'), changed('1.5', '1.6'), changed('1.8', '1.9')],
    [false, true, false],
  );
  assert.deepEqual([lineage.answered(version('1.7')), lineage.answered(version('1.9'))], [false, true]);
});

test('a lineage drops the oldest of too many changes that do not follow', () => {
  const lineage = new Lineage(version('1.5'));
  for (let seq = 7; seq < 1_000; seq++)
    lineage.changed({ before: version(`1.${seq}`), contents: version(`1.${seq + 1}`) });
  // If all were kept, this change would connect to the last of them.
  lineage.changed({ before: version('1.5'), contents: version('1.7') });
  assert.ok(lineage.is(version('1.7')));
});
