import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLinearizable } from './brute-force.ts';
import { historyCheck, keyCheck, onlyReadsAreWrong } from './checker.ts';
import { historyOf } from './conversation.ts';
import type { Operation } from './operation.ts';
import { verdictText } from './report.ts';

interface Case {
  readonly name: string;
  readonly key: string;
  readonly good: boolean;
  readonly text: string;
}

const bad = (key: string, name: string, text: string): Case => ({ name, key, good: false, text });
const good = (key: string, name: string, text: string): Case => ({ name, key, good: true, text });

const CASES: readonly Case[] = [
  good('object/1', 'nothing but a read of nothing', '1 2 a read -> -'),
  good('object/1', 'one after the other', '1 2 a write x\n3 4 b read -> x\n5 6 a write y\n7 8 b read -> y'),
  good('object/1', 'a read beside a write sees either', '1 9 a write x\n2 3 b read -> -\n4 5 b read -> x'),
  bad('object/1', 'a stale read', '1 2 a write x\n3 4 a write y\n5 6 b read -> x'),
  bad('object/1', 'a read of a value that was not written', '1 2 a write x\n3 4 b read -> z'),
  bad('object/1', 'a read of what is written later', '1 2 b read -> x\n3 4 a write x'),
  bad('object/1', 'a lost update', '1 2 a write x\n3 4 b read -> -'),
  bad('object/1', 'new, then old', '1 9 a write x\n2 3 b read -> x\n4 5 c read -> -'),
  bad(
    'object/1',
    'two readers disagree on an order',
    '1 9 a write x\n1 9 b write y\n10 11 c read -> x\n12 13 d read -> y',
  ),
  bad('object/1', 'a torn read', '1 2 a write x\n3 9 a write y\n4 5 b read -> torn'),
  good(
    'object/1',
    'an unknown write that takes effect late',
    ['1 ? a write x', '2 3 b write y', '4 5 b read -> y', '6 7 b read -> x'].join('\n'),
  ),
  good(
    'object/1',
    'an unknown write that never takes effect',
    '1 ? a write x\n2 3 b write y\n4 5 b read -> y',
  ),
  bad(
    'object/1',
    'an unknown write that takes effect twice',
    ['1 ? a write x', '2 3 b read -> x', '4 5 b write y', '6 7 b read -> x'].join('\n'),
  ),
  bad('object/1', 'an unknown write that takes effect before its call', '1 2 b read -> x\n3 ? a write x'),
  bad('object/1', 'a failed write that took effect', '1 ! a write x\n2 3 b read -> x'),
  good('object/1', 'a failed write that did not', '1 ! a write x\n2 3 b read -> -'),
  good('object/1', 'returning at the moment of a call is concurrent', '1 3 a write x\n3 4 b read -> -'),
  bad(
    'object/1',
    'a write that overtook one that had returned',
    ['1 2 a write x', '3 4 b write y', '5 6 c read -> y', '7 8 c read -> x'].join('\n'),
  ),
  good('entry/1', 'compare and set', '1 2 a cas - x -> true\n3 4 b cas - y -> false\n5 6 c read -> x'),
  bad('entry/1', 'compare and set succeeds twice', '1 9 a cas - x -> true\n1 9 b cas - y -> true'),
  good(
    'entry/1',
    'compare and set, and again after a delete',
    ['1 9 a cas - x -> true', '1 9 b delete -> x', '1 9 c cas - y -> true'].join('\n'),
  ),
  bad('entry/1', 'a comparison that failed without a reason', '1 2 a write x\n3 4 b cas x y -> false'),
  good(
    'entry/1',
    'a comparison that failed because of an unknown write',
    ['1 2 a write x', '3 ? c write z', '4 5 b cas x y -> false', '6 7 b read -> z'].join('\n'),
  ),
  good(
    'entry/1',
    'a comparison that failed because of an unknown write that no read returned',
    ['1 2 a write x', '3 ? c write z', '4 5 b cas x y -> false', '6 7 b write w'].join('\n'),
  ),
  bad('entry/1', 'a delete undone', '1 2 a write x\n3 4 b delete -> x\n5 6 c read -> x'),
  bad('entry/1', 'deleted twice', '1 2 a write x\n3 4 b delete -> x\n5 6 c delete -> x'),
  bad('entry/1', 'a write that says it took the place of another', '1 2 a write x\n3 4 b write y -> z'),
  good('entry/1', 'a write that says what it replaced', '1 9 a write x -> y\n1 9 b write y -> -'),
  bad(
    'entry/1',
    'an unknown comparison that cannot have held',
    ['1 2 a write x', '3 ? b cas w y', '4 5 c read -> y'].join('\n'),
  ),
  good('entry/1', 'an unknown delete that happened', '1 2 a write x\n3 ? b delete\n4 5 c read -> -'),
  good('list/1', 'appends side by side', '1 9 a append x\n1 9 b append y\n10 11 c read -> [y x]'),
  bad('list/1', 'a lost append', '1 2 a append x\n3 4 b append y\n5 6 c read -> [y]'),
  bad('list/1', 'a duplicated append', '1 2 a append x\n3 4 b append y\n5 6 c read -> [x y x]'),
  bad('list/1', 'reordered appends', '1 2 a append x\n3 4 b append y\n5 6 c read -> [y x]'),
  bad(
    'list/1',
    'an order that changes',
    ['1 9 a append x\n1 9 b append y', '10 11 c read -> [x y]\n12 13 c read -> [y x]'].join('\n'),
  ),
  bad('list/1', 'a list that gets shorter', '1 9 a append x\n2 3 b read -> [x]\n4 5 b read -> []'),
  bad('list/1', 'two appends at one place', '1 9 a append x -> 0\n1 9 b append y -> 0'),
  bad('list/1', 'an append behind nothing', '1 2 a append x -> 1'),
  good('list/1', 'an append behind one that is unknown', '1 ? a append x\n2 3 b append y -> 1'),
  good(
    'list/1',
    'an unknown append that happens late',
    ['1 ? a append x', '2 3 b append y', '4 5 c read -> [y]\n6 7 c read -> [y x]'].join('\n'),
  ),
  bad('list/1', 'a failed append that is there', '1 ! a append x\n2 3 b append y\n4 5 c read -> [x y]'),
  good(
    'file/1',
    'write, extend, cut',
    [
      '1 2 a pwrite 0 abcd -> 4',
      '3 4 a fappend ef -> 4',
      '5 6 b size -> 6',
      '7 8 a truncate 3 -> 3',
      '9 10 b pread 0 9 -> abc',
    ].join('\n'),
  ),
  good(
    'directory/1',
    'a rename takes its file along and replaces',
    '1 2 a create x f1 -> true\n3 4 a create y f2 -> true\n5 6 b rename x y -> true\n7 8 c lookup y -> f1\n7 8 d lookup x -> -',
  ),
  bad('directory/1', 'two exclusive creates succeed', '1 9 a create x f1 -> true\n1 9 b create x f2 -> true'),
  good(
    'directory/1',
    'an unlink frees the name for the next creation',
    '1 9 a create x f1 -> true\n1 9 b create x f2 -> true\n1 9 c unlink x -> true',
  ),
  bad(
    'directory/1',
    'an unlinked name that a look-up finds again',
    '1 2 a create x f1 -> true\n3 4 a unlink x -> true\n5 6 b lookup x -> f1',
  ),
  bad(
    'directory/1',
    'a late unlink removes another file',
    '1 2 a create x f1 -> true\n3 4 a unlink x -> true\n5 6 b create x f2 -> true\n7 8 c lookup x -> -',
  ),
  good('file/1', 'a hole is zeros', '1 2 a pwrite 2 xy -> 4\n3 4 b pread 0 4 -> ~~xy'),
  bad('file/1', 'a hole is something else', '1 2 a pwrite 2 xy\n3 4 b pread 0 4 -> aaxy'),
  bad(
    'file/1',
    'a truncation that leaves the old tail',
    ['1 2 a pwrite 0 abcdef', '3 4 a truncate 2', '5 6 a truncate 6', '7 8 b pread 0 6 -> abcdef'].join('\n'),
  ),
  good(
    'file/1',
    'bytes that a truncation removed are zeros',
    ['1 2 a pwrite 0 abcdef', '3 4 a truncate 2', '5 6 a pwrite 5 x', '7 8 b pread 0 9 -> ab~~~x'].join('\n'),
  ),
  good('file/1', 'a hole within', '1 2 a pwrite 0 abcd\n3 4 a punch 1 3 -> 4\n5 6 b pread 0 9 -> a~~d'),
  bad('file/1', 'a hole that was not made', '1 2 a pwrite 0 abcd\n3 4 a punch 1 3\n5 6 b pread 0 4 -> abcd'),
  bad('file/1', 'a size of before', '1 2 a fappend abc -> 0\n3 4 b size -> 0'),
  bad('file/1', 'two appends at one place', '1 9 a fappend abc -> 0\n1 9 b fappend def -> 0'),
  bad(
    'file/1',
    'a read torn between two writes',
    ['1 2 a pwrite 0 aaaa', '3 9 a pwrite 0 bbbb', '4 5 b pread 0 4 -> aabb'].join('\n'),
  ),
  good('file/1', 'a read behind the end is empty', '1 2 a fappend abc\n3 4 b pread 3 2 -> -'),
  good(
    'file/1',
    'an unknown truncation that happens late',
    ['1 2 a fappend abcd -> 0', '3 ? b truncate 1', '4 5 c size -> 4', '6 7 c pread 0 4 -> a'].join('\n'),
  ),
  bad(
    'file/1',
    'an unknown truncation that happens twice',
    [
      '1 2 a fappend abcd -> 0\n3 ? b truncate 1',
      '4 5 c size -> 1\n6 7 a fappend xyz -> 1\n8 9 c size -> 1',
    ].join('\n'),
  ),
  bad('file/1', 'a failed truncation that happened', '1 2 a fappend ab\n3 ! b truncate 0\n4 5 c size -> 0'),
];

for (const { name, key, good: isGood, text } of CASES) {
  test(`${key.split('/')[0]}: ${name}`, () => {
    const history = historyOf(key, text);
    assert.equal(isLinearizable(history), isGood, 'the definition');
    assert.equal(keyCheck(history).kind, isGood ? 'linearizable' : 'violation');
  });
}

test('the cases have good and bad histories of each kind', () => {
  assert.ok(CASES.length >= 30);
  for (const kind of ['object', 'entry', 'list', 'file']) {
    const ofKind = CASES.filter(({ key }) => key.startsWith(kind));
    assert.ok(ofKind.some((one) => one.good) && ofKind.some((one) => !one.good), kind);
  }
});

test('a report names the operation that cannot be explained, and only the operations that are needed', () => {
  const quiet = Array.from({ length: 40 }, (_, index) => {
    const at = index * 4;
    return `${at} ${at + 1} a write v${index}\n${at + 2} ${at + 3} b read -> v${index}`;
  });
  const lines = [
    ...quiet,
    '200 220 a write x\n201 219 c write y',
    '202 203 b read -> x',
    '204 205 d read -> v39',
    '206 207 b read -> x',
  ];
  const verdict = historyCheck(historyOf('object/7', lines.join('\n')));
  assert.equal(verdict.violations.length, 1);
  const [violation] = verdict.violations;
  assert.ok(violation !== undefined);
  assert.deepEqual([violation.failed.call, violation.failed.client], [204, 'd']);
  assert.deepEqual(violation.before, ['"x"']);
  assert.deepEqual(violation.window, [violation.failed]);
  assert.match(
    verdictText(verdict),
    /object\/7 is not linearizable[\s\S]*\* .*d: read\(\) → "v39"[\s\S]*NOT/,
  );
});

test('a window has the operations that contradict each other, and no other concurrent ones', () => {
  const text = `
    1 2 a write x
    10 90 e write late
    11 12 b read -> x
    13 50 a write y
    20 22 c read -> y
    30 60 d read -> x
    31 32 b read -> y`;
  const verdict = keyCheck(historyOf('object/7', text));
  assert.equal(verdict.kind, 'violation');
  if (verdict.kind !== 'violation') return;
  assert.equal(verdict.violation.failed.client, 'd');
  assert.deepEqual(
    verdict.violation.window.map(({ client }) => client),
    ['d'],
  );
  assert.deepEqual(verdict.violation.before, ['"y"']);
});

test('each key is judged separately', () => {
  const one = historyOf('object/1', '1 2 a write x\n5 6 b read -> x');
  const other = historyOf('object/2', '3 4 a write y\n5 6 b read -> -');
  const verdict = historyCheck([...one, ...other]);
  assert.deepEqual([verdict.operations, verdict.keys], [4, 2]);
  assert.deepEqual(
    verdict.violations.map(({ key }) => key),
    ['object/2'],
  );
});

test('the reads at the end distinguish a stale read from a lost write', () => {
  const isLast = ({ client }: Operation): boolean => client === 'last';
  const stale = '1 2 a write x\n3 4 a write y\n5 6 b read -> x\n9 10 last read -> y';
  const lost = '1 2 a write x\n3 4 a write y\n5 6 b read -> x\n9 10 last read -> x';
  assert.equal(onlyReadsAreWrong(historyOf('object/1', stale), isLast), true);
  assert.equal(onlyReadsAreWrong(historyOf('object/1', lost), isLast), false);
});

test('a search that takes too long ends as undecided', () => {
  // All writes are concurrent, and no order of them explains the read.
  const writes = Array.from({ length: 12 }, (_, index) => `1 90 c${index} pwrite ${index} v${index}`);
  const verdict = historyCheck(historyOf('file/1', [...writes, '92 93 r pread 0 2 -> ww'].join('\n')), {
    configurationsMax: 1000,
  });
  assert.deepEqual(verdict.undecided, ['file/1']);
  assert.match(verdictText(verdict), /undecided/);
});
