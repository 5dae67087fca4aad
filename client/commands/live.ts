import type { Command } from 'commander';
import type { ServerEvent } from '../../wire/live-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { LiveScreen } from '../live/live-screen.ts';
import { type LiveEvent, watchCluster } from '../live/live-stream.ts';
import { eventLine, stateLines } from '../live/live-text.ts';
import { printable, printJson, printLine } from '../terminal/output.ts';
import { EndSignal } from '../terminal/signals.ts';
import { Endpoints } from '../transport/endpoints.ts';
import { accessOf, clusterCommand, serversOf } from './cluster-command.ts';

const PATIENCE_MS = 5_000;
/** By the third state, every server that answers has reported what it remembers. */
const STATES = 3;
const RECENT_MAX = 8;

export function addLiveCommands(program: Command): void {
  clusterCommand(program, 'events')
    .description('show recent events of the cluster, each with the reason why it is safe')
    .option('--follow', 'keep printing until Ctrl-C')
    .option('--json', 'print each as one line of JSON')
    .action(async (options: { follow?: true; json?: true }, command: Command) => {
      const printed = new Set<string>();
      const print = (serverEvent: ServerEvent): void => {
        if (printed.has(serverEvent.id)) return;
        printed.add(serverEvent.id);
        if (options.json) printJson(serverEvent);
        else printLine(printable(eventLine(serverEvent)));
      };
      const early: ServerEvent[] = [];
      let states = 0;
      await watch(command, null, (event) => {
        if (event.kind === 'state' && ++states === STATES) {
          for (const serverEvent of early.sort((a, b) => a.atMs - b.atMs)) print(serverEvent);
        }
        const events = eventsOf(event);
        if (states < STATES) early.push(...events);
        else for (const serverEvent of events) print(serverEvent);
        return states < STATES || options.follow === true;
      });
    });

  clusterCommand(program, 'top')
    .description('show servers, traffic and events live; once if the output is no terminal')
    .option('--watch <path>', 'show this file too: VOLUME:/path')
    .option('--once', 'show it once and end')
    .action(async (options: { watch?: string; once?: true }, command: Command) => {
      const screen = new LiveScreen(process.stdout);
      const isOnce = options.once === true || !screen.isLive;
      const recent: ServerEvent[] = [];
      let leaseMs = 1;
      let states = 0;
      const path = options.watch === undefined ? null : watchedPath(options.watch);
      await watch(command, path, (event) => {
        if (event.kind === 'resync') leaseMs = event.resync.timing.leaseMs;
        for (const serverEvent of eventsOf(event)) {
          const known = recent.findIndex(({ id }) => id === serverEvent.id);
          if (known >= 0) recent.splice(known, 1);
          recent.push(serverEvent);
        }
        recent.sort((a, b) => a.atMs - b.atMs).splice(0, recent.length - RECENT_MAX);
        if (event.kind !== 'state') return true;
        const lines = [...stateLines(event.state, leaseMs), '', ...recent.map(eventLine)].map(printable);
        if (!isOnce) screen.show(lines);
        else if (++states === STATES) for (const line of lines) printLine(line);
        return !isOnce || states < STATES;
      });
    });
}

function eventsOf(event: LiveEvent): readonly ServerEvent[] {
  if (event.kind === 'resync') return event.resync.happenings;
  return event.kind === 'happened' ? [event.serverEvent] : [];
}

function watchedPath(text: string): string {
  const { volume, path } = parseRemotePath(text);
  return `${volume}:${path}`;
}

async function watch(
  command: Command,
  path: string | null,
  onEvent: (event: LiveEvent) => boolean,
): Promise<void> {
  using end = new EndSignal();
  const endpoints = new Endpoints(systemWorld, serversOf(command), accessOf(command));
  try {
    for await (const event of watchCluster(endpoints, path, PATIENCE_MS, end.signal)) {
      if (!onEvent(event)) return;
    }
  } catch (error) {
    if (!end.signal.aborted) throw error;
  } finally {
    await endpoints.close();
  }
}
