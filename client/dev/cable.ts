import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded into a server that `leasehold dev` or `demo` starts, before anything else. SIGURG, which has no other use
 * here, disconnects this one process from the network, and the next one reconnects it: connections break, and new ones
 * are refused in both directions. The server itself knows nothing of it.
 */
const open = new Set<Socket>();
let isPulled = false;

function admit(socket: Socket, pulled: Error | undefined): void {
  if (isPulled) {
    socket.destroy(pulled);
    return;
  }
  open.add(socket);
  socket.once('close', () => open.delete(socket));
}

if (isMainThread) {
  subscribe('net.client.socket', (message) => {
    admit((message as { readonly socket: Socket }).socket, new Error('the network cable is pulled'));
  });
  subscribe('net.server.socket', (message) => {
    admit((message as { readonly socket: Socket }).socket, undefined);
  });
  process.on('SIGURG', () => {
    isPulled = !isPulled;
    if (isPulled) for (const socket of [...open]) socket.destroy();
  });
}
