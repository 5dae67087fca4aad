import { stderrLog } from '../../fuse/log.ts';
import { reportReady, unmountOnSignal } from '../../fuse/main.ts';
import { mountVolume } from '../../fuse/mount.ts';
import { type TransportName, transportNamed } from '../../fuse/transports.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type Disturbance, MemoryBackend } from './memory-backend.ts';
import { A, MemoryAttachments, ROOT } from './nested-mount.ts';

/** Messages of the test's process; each is answered with a report. */
export type Order =
  | { readonly kind: 'disturb'; readonly disturbance: Disturbance }
  | { readonly kind: 'write-from-elsewhere'; readonly name: string; readonly text: string }
  | { readonly kind: 'replace-from-elsewhere'; readonly name: string; readonly text: string }
  | { readonly kind: 'rename-from-elsewhere'; readonly name: string; readonly to: string }
  | { readonly kind: 'report' }
  /** Ends the process as an unexpected error does. Not answered. */
  | { readonly kind: 'crash'; readonly exitCode: number };

export interface Report {
  readonly calls: Readonly<Record<string, number>>;
  readonly residentBytes: number;
  /** Of the files in the root. */
  readonly sizes: Readonly<Record<string, number>>;
  /** The same of the attached volume. */
  readonly nestedSizes: Readonly<Record<string, number>>;
}

export interface DaemonOptions {
  readonly limitMs: number;
  readonly transport: TransportName;
  /** How long attributes and names are cached. */
  readonly ageMaxMs?: number;
  readonly flushBehind?: boolean;
  /** Another volume is attached at the directory `a` of the root. */
  readonly nested?: boolean;
}

/**
 * A mount in a process of its own, over a cluster in memory. Arguments: a word that marks the process of a mount,
 * `DaemonOptions`, the directory.
 */
const [, optionsText, directory] = process.argv.slice(2);
if (optionsText === undefined || directory === undefined)
  throw new Error('Options and a directory are needed');
const { transport, nested, ...options } = JSON.parse(optionsText) as DaemonOptions;
const backend = new MemoryBackend();
const list = new MemoryAttachments();
if (nested === true) list.attach(A, backend, ROOT, 'a');
const mounted = await mountVolume(backend, transportNamed(transport), {
  world: systemWorld,
  ...{ directory, source: 'leasehold:test', xattrs: true, log: stderrLog(systemWorld, 'warn') },
  nested: { attachments: list, open: (attachment) => list.open(attachment) },
  ...options,
});
unmountOnSignal(mounted.unmount, (error) => console.error(error));
process.on('message', (order: Order) => {
  if (order.kind === 'disturb') backend.disturb(order.disturbance);
  if (order.kind === 'write-from-elsewhere') backend.writeFromElsewhere(order.name, order.text);
  if (order.kind === 'replace-from-elsewhere') backend.replaceFromElsewhere(order.name, order.text);
  if (order.kind === 'rename-from-elsewhere') backend.renameFromElsewhere(order.name, order.to);
  if (order.kind === 'crash') process.exit(order.exitCode);
  process.send?.(report());
});
reportReady({ ready: true, pid: process.pid });
await mounted.ended;
process.send?.(report(), () => process.exit(process.exitCode ?? 0));

function report(): Report {
  return {
    calls: { ...backend.calls },
    residentBytes: process.memoryUsage.rss(),
    sizes: backend.sizes(),
    nestedSizes: list.backend(A).sizes(),
  };
}
