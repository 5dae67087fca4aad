/**
 * Goal: the documents for users show what really happens. Each of their blocks is run on a cluster that the document
 * starts itself, is compared with the output, or is part of a file that is run elsewhere; a block without any of these
 * fails.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { blocksOf, notPrinted } from './blocks.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const DOCUMENTS = ['README.md', 'docs/guide.md'];
/**
 * Separate network, mount and process namespaces: ports and folders that documents name are free there, and what they
 * kill belongs to them.
 */
const NAMESPACES = ['--net', '--mount', '--pid', '--fork', '--mount-proc', '--kill-child'];

const skip = (await mountObstacle()) ?? noNamespaces();

for (const document of DOCUMENTS) {
  const text = readFileSync(join(ROOT, document), 'utf8');

  test(`each block of ${document} is run, printed, or in a file that is run`, () => {
    for (const { line, code, proof } of blocksOf(text)) {
      const file = proof.kind === 'run-by' ? proof.file : proof.kind === 'background' && proof.runBy?.file;
      if (!file) continue;
      const script = readFileSync(join(ROOT, file), 'utf8').split('\n');
      const lines = new Set(script.map((other) => other.trim()));
      for (const wanted of code.split('\n')) {
        assert.ok(lines.has(wanted.trim()), `line ${line}: ${file} does not have: ${wanted}`);
      }
    }
  });

  test(`${document} does what it says`, { skip, timeout: 600_000 }, async () => {
    const script = fileURLToPath(new URL('run-document.ts', import.meta.url));
    const child = spawn('unshare', [...NAMESPACES, process.execPath, script, document]);
    let printed = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        printed += chunk;
      });
    }
    const [code] = await once(child, 'close');
    assert.equal(code, 0, printed);
  });
}

test('a block without a way to test it is refused', () => {
  assert.throws(() => blocksOf('```js\nf()\n```'), /No test runs the block in line 1/);
  assert.throws(() => blocksOf('<!-- not run -->\n```sh\nls\n```'), /Line 2 says: not run/);
});

test('output is compared except for numbers, units and the width of columns', () => {
  assert.equal(notPrinted('lease  s1, 1.4 s left', 'path main\nlease    s3, 988 ms left\n'), null);
  assert.equal(notPrinted('a\n…\nc', 'a\nb\nc'), null);
  assert.equal(notPrinted('c\na', 'a\nc'), 'a');
});

function noNamespaces(): string | false {
  try {
    execFileSync('unshare', [...NAMESPACES, 'ip', 'link', 'set', 'lo', 'up'], { stdio: 'pipe' });
    return false;
  } catch (error) {
    return `Namespaces cannot be made here: ${error instanceof Error ? error.message : String(error)}`;
  }
}
