import assert from 'node:assert/strict';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../../client/mounts/run-program.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { mountDevice, unmountDirectory } from '../../fuse/kernel/mount-programs.ts';

/** Goal: a command is never held up by a program of the system that it runs. */

const OUT_HEADER_BYTES = 16;
const INIT_OUT_BYTES = 64;
const REQUEST_BYTES_MAX = 1024 * 1024;
const skip = kernelTransportObstacle() ?? false;

test('a missing program, a failed one and one that prints have different results', async () => {
  assert.deepEqual(await run('no-such-program', []), { kind: 'missing' });
  assert.deepEqual(await run('sh', ['-c', 'echo out; echo err >&2']), { kind: 'done', output: 'err\nout' });
  assert.deepEqual(await run('sh', ['-c', 'echo out; exit 3']), { kind: 'failed', output: 'out' });
  const late = await run('sleep', ['300'], 50);
  assert.deepEqual(late, { kind: 'failed', output: 'it took longer than 50 ms' });
});

test('a program that cannot be killed is left behind', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-silent-'));
  t.after(() => rmdirSync(directory));
  const device = await open('/dev/fuse', 'r+');
  await mountDevice(device.fd, directory, 'silent', []);
  try {
    const init = await nextRequest(device);
    await device.write(initAnswer(init));
    const [result] = await Promise.all([run('stat', ['-f', directory], 300), nextRequest(device)]);
    assert.deepEqual(result, { kind: 'failed', output: 'it took longer than 300 ms' });
  } finally {
    // The kernel then fails the call that has no answer.
    await device.close();
    await unmountDirectory(directory, true);
  }
});

async function nextRequest(device: FileHandle): Promise<Buffer> {
  const { bytesRead, buffer } = await device.read(Buffer.alloc(REQUEST_BYTES_MAX));
  return buffer.subarray(0, bytesRead);
}

/** See `struct fuse_out_header` and `struct fuse_init_out` in linux/fuse.h. */
function initAnswer(request: Buffer): Buffer {
  const answer = Buffer.alloc(OUT_HEADER_BYTES + INIT_OUT_BYTES);
  answer.writeUInt32LE(answer.length, 0);
  // The number of the request, then the version that the kernel gave.
  request.copy(answer, 8, 8, 16);
  request.copy(answer, OUT_HEADER_BYTES, 40, 48);
  answer.writeUInt32LE(4096, OUT_HEADER_BYTES + 20);
  return answer;
}
