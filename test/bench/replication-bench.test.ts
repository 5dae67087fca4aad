import assert from 'node:assert/strict';
import { test } from 'node:test';
import { argumentsOf } from '../../bench/replication/arguments.ts';
import { metricsOf, peerTrafficOf, trafficSince, trafficSum } from '../../bench/replication/counters.ts';
import { documentWith } from '../../bench/replication/document.ts';
import { SECTION_NAMES } from '../../bench/replication/names.ts';
import { bytesBetweenIn } from '../../bench/replication/sockets.ts';
import { longestGapMs } from '../../bench/replication/steady-writer.ts';
import { syncCallsOf } from '../../bench/replication/syncs.ts';

test('the command line accepts sections and options, and rejects unknown ones', () => {
  const plain = argumentsOf([]);
  assert.ok(plain.kind === 'run');
  assert.deepEqual(plain.sections, SECTION_NAMES);
  assert.equal(plain.runs, 5);
  assert.deepEqual(argumentsOf(['writes', 'reads', 'writes', '--quick', '--profile', 'p', '--write-docs']), {
    kind: 'run',
    sections: ['reads', 'writes'],
    quick: true,
    runs: 1,
    json: null,
    profile: 'p',
    writeDocs: true,
  });
  assert.equal(argumentsOf(['--help', 'reads']).kind, 'help');
  for (const [words, message] of [
    [['raeds'], /no section "raeds"/],
    [['--quik'], /--quik/],
    [['--runs', '0'], /--runs wants a number from 1 to 100, not "0"/],
    [['--json'], /--json/],
  ] as const) {
    const fault = argumentsOf(words);
    assert.ok(fault.kind === 'fault', words.join(' '));
    assert.match(fault.message, message);
  }
});

const METRICS = [
  '# HELP leasehold_peer_bytes_total Bytes between servers, by direction',
  '# TYPE leasehold_peer_bytes_total counter',
  'leasehold_peer_bytes_total{direction="sent"} 9000',
  'leasehold_peer_bytes_total{direction="received"} 5',
  'leasehold_peer_messages_total{fate="sent"} 12',
  'leasehold_forwards_total{to="s2"} 3',
  'leasehold_forwards_total{to="s 3"} 4',
  'leasehold_recovering_seconds 0.25',
  '',
].join('\n');

test('messages between servers are counted from their metrics', () => {
  const metrics = metricsOf(METRICS);
  assert.equal(metrics.get('leasehold_recovering_seconds'), 0.25);
  const traffic = peerTrafficOf(metrics);
  assert.deepEqual(traffic, { messages: 12, bytes: 9_000, forwards: 7 });
  const sum = trafficSum([traffic, traffic]);
  assert.deepEqual(sum, { messages: 24, bytes: 18_000, forwards: 14 });
  assert.deepEqual(trafficSince(sum, traffic), traffic);
  assert.throws(() => peerTrafficOf(metricsOf('')), /no metric leasehold_peer_messages_total/);
});

test('only sockets whose two ends are servers count', () => {
  const line = (local: string, remote: string, pid: number, sent: number): string =>
    `ESTAB 0 0 ${local} ${remote} users:(("node",pid=${pid},fd=21)) cubic rto:204 bytes_sent:${sent} bytes_acked:1`;
  const listing = [
    line('127.0.0.1:7401', '127.0.0.1:50000', 1, 100),
    line('127.0.0.1:50000', '127.0.0.1:7401', 2, 20),
    // A client's socket.
    line('127.0.0.1:7401', '127.0.0.1:50001', 1, 4_000),
    line('127.0.0.1:50001', '127.0.0.1:7401', 9, 5_000),
    // A server's socket to itself.
    line('127.0.0.1:7402', '127.0.0.1:50002', 2, 70_000),
    line('127.0.0.1:50002', '127.0.0.1:7402', 2, 80_000),
    // Closed at one side, and never written to.
    'TIME-WAIT 0 0 127.0.0.1:7401 127.0.0.1:50003',
    'ESTAB 0 0 127.0.0.1:7403 127.0.0.1:50004 users:(("node",pid=3,fd=9)) cubic rto:204',
    line('127.0.0.1:50004', '127.0.0.1:7403', 1, 3),
    '',
  ].join('\n');
  assert.equal(bytesBetweenIn(listing, [1, 2, 3]), 123);
  assert.equal(bytesBetweenIn(listing, [1, 3]), 3);
  assert.equal(bytesBetweenIn('', [1, 2]), 0);
});

test('syncs of all kinds are summed from the summary of strace', () => {
  const summary = [
    'syscall              calls',
    '---------------- ---------',
    'fdatasync             1201',
    'fsync                    3',
    'write                  900',
    '---------------- ---------',
    'total                 2104',
  ].join('\n');
  assert.equal(syncCallsOf(summary), 1_204);
  assert.equal(syncCallsOf(''), 0, 'No call leaves no summary');
});

test('a gap is the time between two successive acknowledgements, also across the ends of the span', () => {
  const acknowledgements = [0, 10, 12, 80, 90, 300].map((atMs) => ({ atMs, epoch: 1 }));
  assert.equal(
    longestGapMs(acknowledgements, 11, 90),
    210,
    'The gap lasts until the last acknowledgement in the span',
  );
  assert.equal(longestGapMs(acknowledgements, 11, 85), 68);
  assert.equal(longestGapMs(acknowledgements, 20, 30), 68, 'No acknowledgement in the span');
  assert.equal(longestGapMs(acknowledgements, 0, 11), 10);
  assert.equal(longestGapMs([], 0, 100), 0);
});

const REPORT = {
  table: { columns: ['what', 'ms'], rows: [['a | b', '1']] },
  goals: [{ what: 'fast', wanted: 'at most 2', measured: '1', met: true }],
  notes: ['Nothing else ran.'],
  figures: [],
  data: null,
};

test('a section is appended to a document, or replaces the earlier one; the rest is unchanged', () => {
  const reads = { name: 'reads', title: 'Reads', report: REPORT };
  const writes = { name: 'writes', title: 'Writes', report: REPORT };
  const once = documentWith('# Performance\n\nWords.\n', 'a machine', [reads, writes]);
  assert.ok(once.startsWith('# Performance\n\nWords.\n\n<!-- '));
  assert.match(
    once,
    /### Reads\n\n`npm run bench:replication -- reads` on a machine\.\n\n\| what \| ms \|\n/,
  );
  assert.ok(once.includes('| a \\| b | 1 |'));
  assert.match(once, /\n- met: fast: wanted at most 2, measured 1\n/);
  const slow = { ...REPORT, notes: ['Much else ran.'] };
  const behind = `${once}\nMore words.\n`;
  const twice = documentWith(behind, 'another', [{ ...writes, report: slow }]);
  assert.equal(twice.match(/### Reads/g)?.length, 1);
  assert.equal(twice.match(/### Writes/g)?.length, 1);
  assert.ok(twice.indexOf('### Reads') < twice.indexOf('### Writes'));
  assert.ok(twice.includes('Much else ran.') && twice.endsWith('\n\nMore words.\n'));
  assert.equal(
    documentWith(twice, 'another', [{ ...writes, report: slow }]),
    twice,
    'Writing the same section again changes nothing',
  );
  assert.throws(() => documentWith('<!-- written by npm run bench:replication -->', '', []), /not in order/);
});
