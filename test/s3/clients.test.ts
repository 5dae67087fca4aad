import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { OPERATIONS, type TestedClient, testedClients } from './clients.ts';
import { clientOf } from './s3-server.ts';

/**
 * Goal: programs that speak S3 do what they do elsewhere. Method: the installed ones on a cluster of three processes,
 * each with a bucket of its own; the results are the table in docs/interfaces.md.
 */
const DOCUMENT = join(import.meta.dirname, '../../docs/interfaces.md');
const BEGIN = '<!-- S3 clients: begin -->';
const END = '<!-- S3 clients: end -->';

const ports = await freePorts(3);
const cluster = await RealCluster.start({
  servers: 3,
  environment: (place) => ({ LEASEHOLD_S3_LISTEN: `127.0.0.1:${ports[place]}` }),
});
const folder = mkdtempSync(join(tmpdir(), 's3-clients-'));
after(async () => {
  await cluster.stop();
  rmSync(folder, { recursive: true });
});
const clients = await testedClients();
const results = new Map<string, string[]>();

for (const [index, { name, steps }] of clients.entries())
  test(`${name} works`, { skip: steps === null ? `${name} is not installed` : false }, async () => {
    const endpoint = `http://127.0.0.1:${ports[index % ports.length]}`;
    const own = mkdtempSync(join(folder, 'client-'));
    const place = { endpoint, bucket: `bucket-${index}`, folder: own, sdk: clientOf({ url: endpoint }) };
    const cells: string[] = [];
    for (const operation of OPERATIONS) {
      const step = steps?.[operation];
      await step?.(place);
      cells.push(step === undefined ? '–' : 'yes');
    }
    results.set(name, cells);
  });

test('the table of the documentation has these results', () => {
  const text = readFileSync(DOCUMENT, 'utf8');
  const [head = '', rest = ''] = text.split(BEGIN);
  const [table = '', tail = ''] = rest.split(END);
  const written = columnsOf(table);
  if (process.env.REWRITE === '1') {
    const all = clients.map(({ name }) => [name, results.get(name) ?? written.get(name) ?? []] as const);
    writeFileSync(DOCUMENT, `${head}${BEGIN}\n\n${tableOf(all)}\n${END}${tail}`);
    return;
  }
  assert.deepEqual(
    [...written.keys()],
    clients.map(({ name }: TestedClient) => name),
  );
  for (const [name, cells] of results) assert.deepEqual(written.get(name), cells, name);
});

function columnsOf(table: string): Map<string, string[]> {
  const rows = table
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .map((line) =>
      line
        .split('|')
        .slice(2, -1)
        .map((cell) => cell.trim()),
    );
  const [names = [], , ...cells] = rows;
  return new Map(names.map((name, column) => [name, cells.map((row) => row[column] ?? '')]));
}

function tableOf(columns: readonly (readonly [string, readonly string[]])[]): string {
  const names = columns.map(([name]) => name);
  const rows = OPERATIONS.map((operation, row) => [
    operation,
    ...columns.map(([, cells]) => cells[row] ?? ''),
  ]);
  return [['operation', ...names], names.map(() => '---').concat('---'), ...rows]
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('');
}
