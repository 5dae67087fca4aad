/**
 * What idle files cost servers: memory, and bytes of the databases on disk. `node bench/sizing.ts [FILES]`; files of
 * 200 bytes with three replicas, a thousand in a directory.
 */
import { randomInt } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ClusterClient } from '../client/cluster/cluster-client.ts';
import { RealCluster } from '../test/cluster/real-cluster.ts';
import {
  decodeNumbers,
  decodeOutcomes,
  encodeNewFiles,
  type FileWithContents,
  type NewFilesAnswer,
  type NumbersAnswer,
} from '../wire/new-files.ts';
import { NEW_FILES_MAX } from '../wire/request-limits.ts';
import { systemWorld } from '../world/system-world.ts';

const FILES = Number(process.argv[2] ?? 100_000);
const FILES_OF_DIRECTORY = 1_000;
const WORKERS = 8;
const CONTENTS = Buffer.alloc(200, 'contents');
const MIB = 2 ** 20;
const NUMBER_MAX = 2 ** 47;

const cluster = await RealCluster.start();
try {
  await cluster.createVolume('main');
  report('empty');
  const startedMs = performance.now();
  const directories = Array.from(
    { length: Math.ceil(FILES / FILES_OF_DIRECTORY) },
    (_, place) => place,
  ).values();
  await Promise.all(Array.from({ length: WORKERS }, () => fill(directories)));
  const seconds = (performance.now() - startedMs) / 1_000;
  process.stdout.write(`${FILES} files in ${seconds.toFixed(1)} s\n`);
  report('made');
  for (const id of cluster.ids) await cluster.kill(id, 'SIGTERM');
  const againMs = performance.now();
  for (const id of cluster.ids) cluster.spawn(id);
  await cluster.ready(cluster.ids);
  process.stdout.write(`ready again after ${((performance.now() - againMs) / 1_000).toFixed(1)} s\n`);
  report('started again');
} finally {
  await cluster.stop();
}

/** Fills directories until none is left. */
async function fill(directories: Iterable<number>): Promise<void> {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  for (const directory of directories) {
    const place = { volume: 'main', path: `/d${directory}` };
    const { attributes } = await client.command({
      ...{ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 },
    } as const);
    await bear(attributes.inode);
  }
  client.close();
}

/** Creates the files of a directory; one without a majority in time is created again with another number. */
async function bear(parent: number): Promise<void> {
  let names = Array.from({ length: FILES_OF_DIRECTORY }, (_, place) => `a file with number ${place}`);
  while (names.length > 0) {
    const owner = randomInt(1, NUMBER_MAX);
    const asked = JSON.stringify({ owner, count: names.length });
    const numbers = decodeNumbers((await post('/v1/births/numbers', asked, 's1')) as NumbersAnswer);
    const births: FileWithContents[] = names.map((name, place) => ({
      ...{ parent, name, inode: numbers.first + place, mode: 0o644, uid: 0, gid: 0 },
      ...{ accessedNs: null, modifiedNs: null, changedNs: null, contents: CONTENTS },
    }));
    names = [];
    for (let from = 0; from < births.length; from += NEW_FILES_MAX) {
      const some = births.slice(from, from + NEW_FILES_MAX);
      const body = encodeNewFiles({ session: randomInt(1, NUMBER_MAX), number: 1, owner, newFiles: some });
      const outcomes = decodeOutcomes(
        (await post('/v1/births', body, numbers.creatingServer)) as NewFilesAnswer,
      );
      for (const [place, outcome] of outcomes.entries()) {
        if (outcome.kind === 'refused') throw new Error(outcome.message);
        if (outcome.kind === 'not-created') names.push((some[place] as FileWithContents).name);
      }
    }
  }
}

async function post(path: string, body: string | Uint8Array, server: string): Promise<unknown> {
  const type = typeof body === 'string' ? 'application/json' : 'application/octet-stream';
  const answer = await fetch(`${cluster.url(server)}${path}`, {
    method: 'POST',
    headers: { 'content-type': type },
    body: typeof body === 'string' ? body : Buffer.from(body),
  });
  if (!answer.ok) throw new Error(`POST ${path}: ${await answer.text()}`);
  return answer.json();
}

function report(when: string): void {
  for (const id of cluster.ids) {
    const status = readFileSync(`/proc/${cluster.pid(id)}/status`, 'utf8');
    const [now, most] = ['VmRSS', 'VmHWM'].map((name) =>
      Math.round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]) / 1_024),
    );
    const sizes = ['catalog.db', 'index.db'].map((name) => {
      const bytes = ['', '-wal'].map((end) => sizeOf(join(cluster.data(id), `${name}${end}`)));
      return `${name} ${bytes.map((size) => (size / MIB).toFixed(1)).join(' + ')} MiB`;
    });
    process.stdout.write(`${when}: ${id} holds ${now} MiB, at the most ${most}; ${sizes.join(', ')}\n`);
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
