import assert from 'node:assert/strict';
import { test } from 'node:test';
import { listenForControl } from '../../fuse/control-socket.ts';

for (const { what, path } of [
  { what: 'no folder', path: () => Promise.reject(new Error('no folder can be made')) },
  { what: 'a folder that is gone', path: () => Promise.resolve('/nowhere/at/all.control') },
])
  test(`a mount whose socket has ${what} works without it, and its log says so`, async () => {
    const { promise: warned, resolve } = Promise.withResolvers<string>();
    const mounted = { remount: assert.fail };
    const end = await listenForControl(path(), mounted, null, (level, message) =>
      resolve(`${level}: ${message}`),
    );
    assert.match(await warned, /^warn: .*it has no socket/);
    end();
  });
