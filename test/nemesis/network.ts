import { existsSync } from 'node:fs';
import { canRun, isRoot, run } from './system.ts';

const FOLDER = '/run/netns';
const PREFIX = 'leasehold-';
/** A hardware address that nobody has. */
const NOBODY = '02:00:00:00:00:fe';

/** Where servers listen, and how packets between them get lost. */
export interface Network {
  /** Why there are no partitions, or null where there are. */
  readonly skipped: string | null;
  /** Host of a server, by its place. */
  host(place: number): string;
  /** Program and arguments that run a command where this server lives. */
  inside(place: number, command: readonly string[]): readonly string[];
  /** Packets from one server to another vanish from now on; the other way they still arrive. */
  cut(from: number, to: number): void;
  heal(): void;
}

/** All servers on one address, with ports of their own: nothing is lost between them. */
export class LoopbackNetwork implements Network {
  readonly skipped: string;

  constructor(reason: string) {
    this.skipped = reason;
  }

  host(): string {
    return '127.0.0.1';
  }

  inside(_place: number, command: readonly string[]): readonly string[] {
    return command;
  }

  cut(): void {
    throw new Error('Loopback is not cut');
  }

  heal(): void {}
}

/**
 * A network namespace for each server and one for the clients, around a bridge. A packet is lost by being
 * sent to a hardware address that nobody has: silently, one way, and for connections that stand already.
 */
export class NamespaceNetwork implements Network {
  readonly skipped = null;
  readonly #name: string;
  readonly #servers: number;

  /** @param name of the network, as `make` answered it */
  constructor(name: string, servers: number) {
    this.#name = name;
    this.#servers = servers;
  }

  /** @returns why namespaces cannot be made here, or null */
  static obstacle(): string | null {
    if (process.platform !== 'linux' || !isRoot()) return 'network namespaces need root on Linux';
    if (!canRun('ip', ['netns', 'list'])) return 'there is no "ip netns"';
    if (!canRun('nsenter', ['--version'])) return 'there is no "nsenter"';
    return null;
  }

  /** Makes the namespaces, under a name of this process. @throws Error where it is not allowed to */
  static make(servers: number): string {
    sweep();
    const name = `${PREFIX}${process.pid}`;
    try {
      NamespaceNetwork.#build(name, servers);
    } catch (error) {
      NamespaceNetwork.remove(name);
      throw error;
    }
    return name;
  }

  static #build(name: string, servers: number): void {
    const hub = `${name}-0`;
    run('ip', ['netns', 'add', hub]);
    batch(hub, ['link set lo up', 'link add br0 type bridge', 'link set br0 up']);
    // Its own address does not follow the ports that come and go.
    batch(hub, [`link set br0 address ${hardwareOf(249)}`, `addr add ${addressOf(249)}/24 dev br0`]);
    for (let place = 0; place < servers; place++) {
      const own = `${name}-${place + 1}`;
      run('ip', ['netns', 'add', own]);
      run('ip', [
        'link',
        'add',
        'eth0',
        'netns',
        own,
        'type',
        'veth',
        'peer',
        'name',
        `p${place}`,
        'netns',
        hub,
      ]);
      batch(hub, [`link set p${place} master br0 up`]);
      batch(own, [
        'link set lo up',
        `link set eth0 address ${hardwareOf(place)}`,
        `addr add ${addressOf(place)}/24 dev eth0`,
        'link set eth0 up',
      ]);
    }
    new NamespaceNetwork(name, servers).heal();
  }

  /** Removes them. What still runs inside keeps running, in namespaces without a name. */
  static remove(name: string): void {
    for (const line of run('ip', ['netns', 'list']).split('\n')) {
      const [namespace = ''] = line.split(' ');
      if (namespace.startsWith(`${name}-`)) run('ip', ['netns', 'del', namespace]);
    }
  }

  /** The command that runs another one where the clients live. */
  static amongClients(name: string, command: readonly string[]): readonly string[] {
    return ['nsenter', `--net=${FOLDER}/${name}-0`, ...command];
  }

  host(place: number): string {
    return addressOf(place);
  }

  inside(place: number, command: readonly string[]): readonly string[] {
    return ['nsenter', `--net=${FOLDER}/${this.#name}-${place + 1}`, ...command];
  }

  cut(from: number, to: number): void {
    batch(`${this.#name}-${from + 1}`, [neighbour(to, NOBODY)]);
  }

  /** Nothing reaches this server any more, and nothing leaves it, the clients included; until `heal`. */
  unplug(place: number): void {
    batch(`${this.#name}-0`, [`link set p${place} nomaster`]);
  }

  /** Ends what `unplug` did. */
  plug(place: number): void {
    batch(`${this.#name}-0`, [`link set p${place} master br0`]);
  }

  heal(): void {
    for (let place = 0; place < this.#servers; place++) {
      this.plug(place);
      const others = Array.from({ length: this.#servers }, (_, other) => other).filter(
        (other) => other !== place,
      );
      batch(
        `${this.#name}-${place + 1}`,
        others.map((other) => neighbour(other, hardwareOf(other))),
      );
    }
  }
}

/** Removes what processes left behind that are gone. */
function sweep(): void {
  for (const line of run('ip', ['netns', 'list']).split('\n')) {
    const [name = ''] = line.split(' ');
    const pid = name.startsWith(PREFIX) ? name.slice(PREFIX.length).split('-')[0] : undefined;
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) run('ip', ['netns', 'del', name]);
  }
}

function batch(namespace: string, commands: readonly string[]): void {
  run('ip', ['-n', namespace, '-batch', '-'], `${commands.join('\n')}\n`);
}

function neighbour(place: number, hardware: string): string {
  return `neigh replace ${addressOf(place)} lladdr ${hardware} dev eth0 nud permanent`;
}

/** Of the range that is set aside for measurements of networks, which nobody uses otherwise. */
function addressOf(place: number): string {
  return `198.18.77.${place + 1}`;
}

function hardwareOf(place: number): string {
  return `02:00:00:00:01:${(place + 1).toString(16).padStart(2, '0')}`;
}
