import { subscribe } from 'node:diagnostics_channel';
import { writeFileSync } from 'node:fs';
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded into a mount's process before anything else (`NODE_OPTIONS=--import`). The first SIGURG makes the process
 * deaf: its requests arrive, and it receives no answer. The second one disconnects it: its connections break, and it
 * can make none. The third one ends both. Requests that were sent in between took effect, and their outcome is unknown
 * to the process. The file that DEAF_STATE names contains the state: two signals of one kind that are sent within a
 * short time count as one.
 */
const STATES = ['connected', 'deaf', 'cut'] as const;

const open = new Set<Socket>();
let state: (typeof STATES)[number] = 'connected';

function admit(socket: Socket): void {
  if (state === 'cut') {
    socket.destroy(new Error('the network is cut'));
    return;
  }
  open.add(socket);
  socket.once('close', () => open.delete(socket));
  if (state === 'deaf') socket.once('connect', () => socket.pause());
}

if (isMainThread) {
  subscribe('net.client.socket', (message) => {
    const { socket } = message as { readonly socket: unknown };
    if (socket instanceof Socket) admit(socket);
  });
  process.on('SIGURG', () => {
    state = STATES[(STATES.indexOf(state) + 1) % STATES.length] ?? 'connected';
    for (const socket of [...open]) {
      if (state === 'deaf') socket.pause();
      if (state === 'cut') socket.destroy();
    }
    const path = process.env.DEAF_STATE;
    if (path !== undefined) writeFileSync(path, state);
  });
}
