import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Command } from '../../wire/catalog-api.ts';
import type { TreeCopy } from '../../wire/http-api.ts';
import { ask, askJson, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const owner = { uid: 7, gid: 8 };
const at = (path: string) => ({ volume: 'main', path });

async function start(t: { after(work: () => Promise<void>): void }) {
  const cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  t.after(() => cluster.close());
  let number = 0;
  const run = (command: Command) => cluster.execute({ session: 9, number: ++number, command });
  const { url } = cluster.server(0);
  const put = (path: string, body: string) =>
    ask(url, 'PUT', `/v1/files/main/${path}?parents=true`, { body });
  const copy = (query: string) => ask(url, 'POST', `/v1/files/main/source/?copy-to=/target${query}`);
  const names = async (path: string) =>
    (
      await askJson<{ entries: { name: string; kind: string; mode: number }[] }>(
        url,
        `/v1/files/main/${path}/`,
      )
    ).entries.map(({ name, kind, mode }) => `${name} ${kind} ${mode.toString(8)}`);
  return { run, url, put, copy, names };
}

test('a tree is copied with modes and links, and inodes without contents are reported', async (t) => {
  const { run, url, put, copy, names } = await start(t);
  await put('source/b', 'contents');
  const { inode } = (
    run({ kind: 'make-directory', place: at('/source/c'), mode: 0o2750, ...owner }) as {
      attributes: { inode: number };
    }
  ).attributes;
  assert.ok(inode > 0);
  await put('source/c/d', 'deep');
  run({ kind: 'symlink', place: at('/source/a'), target: 'c/d', ...owner });
  run({ kind: 'make-node', place: at('/source/c/pipe'), type: 'fifo', device: 0, mode: 0o600, ...owner });
  const answer = await copy('');
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(JSON.parse(answer.text), {
    files: 2,
    directories: 2,
    links: 1,
    bytes: 12,
    same: 0,
    skipped: ['/c/pipe'],
    more: false,
  });
  assert.deepEqual(await names('target'), ['a symlink 777', 'b file 644', 'c directory 2750']);
  assert.deepEqual(await names('target/c'), ['d file 644']);
  assert.equal((await ask(url, 'GET', '/v1/files/main/target/a')).text, 'deep');
});

test('a tree that is too large for one request is copied by the next, from where the one before ended', async (t) => {
  const { run, copy, names } = await start(t);
  run({ kind: 'make-directory', place: at('/source'), mode: 0o755, ...owner });
  for (const directory of ['m', 'n', 'o']) {
    run({ kind: 'make-directory', place: at(`/source/${directory}`), mode: 0o755, ...owner });
    for (let index = 0; index < 900; index++)
      run({ kind: 'symlink', place: at(`/source/${directory}/l${index}`), target: 'x', ...owner });
  }
  const first = await copy('');
  assert.equal(first.status, 202, first.text);
  const report = JSON.parse(first.text) as TreeCopy;
  assert.match(report.next ?? '', /^o\/l/);
  const second = await copy(`&after=${encodeURIComponent(report.next ?? '')}`);
  assert.equal(second.status, 200, second.text);
  const rest = JSON.parse(second.text) as TreeCopy;
  assert.equal(report.links + rest.links, 2_700);
  for (const directory of ['m', 'n', 'o']) assert.equal((await names(`target/${directory}`)).length, 900);
});

test('a continued copy skips files of equal size and time, and copies changed ones', async (t) => {
  const { run, url, put, copy } = await start(t);
  for (const name of ['a', 'b', 'in/c']) await put(`source/${name}`, `first ${name}`);
  const counts = async (): Promise<number[]> => {
    const answer = await copy('&resume=true');
    assert.equal(answer.status, 200, answer.text);
    const { files, same } = JSON.parse(answer.text) as TreeCopy;
    return [files, same ?? -1];
  };
  assert.deepEqual(await counts(), [3, 0]);
  // Interrupted: one is missing. Changed since, one here and one there.
  await ask(url, 'DELETE', '/v1/files/main/target/in/c');
  await put('source/a', 'other a');
  await put('target/b', 'second b');
  assert.deepEqual(await counts(), [3, 0]);
  assert.deepEqual(await counts(), [0, 3]);
  for (const [name, text] of [
    ['a', 'other a'],
    ['b', 'first b'],
    ['in/c', 'first in/c'],
  ])
    assert.equal((await ask(url, 'GET', `/v1/files/main/target/${name}`)).text, text);
  // Without the option, everything is copied.
  run({ kind: 'unlink', place: at('/target/a') });
  assert.equal((JSON.parse((await copy('')).text) as TreeCopy).files, 3);
});

for (const overwrite of ['', '&overwrite=false']) {
  test(`a copy that meets an obstacle reports how far it came, and continues from there${overwrite}`, async (t) => {
    const { run, url, put, copy, names } = await start(t);
    for (const name of ['a', 'b', 'c', 'd', 'e']) await put(`source/in/${name}`, name);
    await put('source/z', 'last');
    if (overwrite === '') {
      run({ kind: 'make-directory', place: at('/target'), mode: 0o755, ...owner });
      run({ kind: 'make-directory', place: at('/target/in'), mode: 0o755, ...owner });
      run({ kind: 'make-directory', place: at('/target/in/c'), mode: 0o755, ...owner });
    } else {
      // Only the root must be new.
      const twice = await copy('');
      assert.equal(twice.status, 200);
      for (const name of ['a', 'b', 'd', 'e']) await ask(url, 'DELETE', `/v1/files/main/target/in/${name}`);
      await ask(url, 'DELETE', '/v1/files/main/target/z');
    }
    const broken = await copy(overwrite === '' ? '' : `${overwrite}&after=b`);
    assert.ok(broken.status === 409 || broken.status === 412, broken.text);
    const { detail } = problemIn(broken);
    const after = /"after=([^"]+)"/.exec(detail)?.[1];
    assert.equal(after, 'in%2Fb', detail);
    if (overwrite === '') run({ kind: 'remove-directory', place: at('/target/in/c') });
    else await ask(url, 'DELETE', '/v1/files/main/target/in/c');
    const rest = await copy(`${overwrite}&after=${after}`);
    assert.equal(rest.status, 200, rest.text);
    assert.equal((await names('target/in')).length, 5);
    assert.equal((await ask(url, 'GET', '/v1/files/main/target/z')).text, 'last');
  });
}

test('no link makes a copy contain itself', async (t) => {
  const { run, url, put } = await start(t);
  await put('source/in/a', 'a');
  run({ kind: 'symlink', place: at('/way'), target: 'source/in', ...owner });
  const answer = await ask(url, 'POST', '/v1/files/main/source/?copy-to=/way/copy');
  assert.deepEqual([answer.status, problemIn(answer).code], [400, 'bad-request']);
});
