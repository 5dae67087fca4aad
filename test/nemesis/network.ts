import { existsSync } from 'node:fs';
import { canRun, isRoot, run } from './system.ts';

const FOLDER = '/run/netns';
const PREFIX = 'leasehold-';
/** A hardware address that no interface has. */
const NOBODY = '02:00:00:00:00:fe';

/** The addresses of servers, and how packets between them get lost. */
export interface Network {
  /** Why partitions are not possible, or null. */
  readonly skipped: string | null;
  /** The host name of a server, by its index. */
  host(place: number): string;
  /** The program and arguments that run a command in this server's namespace. */
  inside(place: number, command: readonly string[]): readonly string[];
  /** Packets from one server to another are lost from now on; those in the other direction still arrive. */
  cut(from: number, to: number): void;
  heal(): void;
}

/** All servers at one address, with ports of their own: no packets are lost. */
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
 * A network namespace for each server and one for the clients, around a bridge. A packet is lost by a neighbour entry
 * with a hardware address that no interface has: silently, in one direction, also for existing connections.
 */
export class NamespaceNetwork implements Network {
  readonly skipped = null;
  readonly #name: string;
  readonly #servers: number;

  /** @param name of the network, as `make` returned it */
  constructor(name: string, servers: number) {
    this.#name = name;
    this.#servers = servers;
  }

  /** @returns why namespaces are not possible here, or null */
  static obstacle(): string | null {
    if (process.platform !== 'linux' || !isRoot()) return 'network namespaces need root on Linux';
    if (!canRun('ip', ['netns', 'list'])) return 'there is no "ip netns"';
    if (!canRun('nsenter', ['--version'])) return 'there is no "nsenter"';
    return null;
  }

  /** Creates the namespaces, under a name of this process. @throws Error if that is not allowed */
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
    // The bridge's own address does not follow the ports that are added and removed.
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

  /** Removes the namespaces. Processes inside keep running, in namespaces without names. */
  static remove(name: string): void {
    for (const line of run('ip', ['netns', 'list']).split('\n')) {
      const [namespace = ''] = line.split(' ');
      if (namespace.startsWith(`${name}-`)) run('ip', ['netns', 'del', namespace]);
    }
  }

  /** @returns the command that runs another one in the clients' namespace */
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

  /** Disconnects this server from all others and from the clients, until `plug` or `heal`. */
  unplug(place: number): void {
    batch(`${this.#name}-0`, [`link set p${place} nomaster`]);
  }

  /** Reverts `unplug`. */
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

/** Removes the networks of processes that have ended. */
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

/** In the range that is reserved for measurements of networks, which is unused otherwise. */
function addressOf(place: number): string {
  return `198.18.77.${place + 1}`;
}

function hardwareOf(place: number): string {
  return `02:00:00:00:01:${(place + 1).toString(16).padStart(2, '0')}`;
}
