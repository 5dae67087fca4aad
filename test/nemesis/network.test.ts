import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { NamespaceNetwork } from './network.ts';

const PORT = 9_999;
const SENDS = 50;
const PAUSE_MS = 20;

/** Prints received datagrams, and sends each line that it reads, "address text", as a datagram. */
const PEER = `
const socket = require('node:dgram').createSocket('udp4');
socket.on('message', (message) => console.log(String(message)));
socket.bind(${PORT}, () => console.log('bound'));
require('node:readline').createInterface(process.stdin).on('line', (line) => {
  const [address, text] = line.split(' ');
  socket.send(text, ${PORT}, address);
}).on('close', () => process.exit());`;

class Peer {
  readonly heard = new Set<string>();
  readonly #process: ChildProcess;

  constructor(network: NamespaceNetwork, place: number) {
    const [program = '', ...args] = network.inside(place, [process.execPath, '-e', PEER]);
    this.#process = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#process.stdout?.setEncoding('utf8').on('data', (text: string) => {
      for (const line of text.trim().split('\n')) this.heard.add(line);
    });
  }

  async ready(): Promise<void> {
    while (!this.heard.has('bound')) await once(this.#process.stdout as Readable, 'data');
  }

  send(address: string, text: string): void {
    this.#process.stdin?.write(`${address} ${text}\n`);
  }

  async end(): Promise<void> {
    const gone = once(this.#process, 'exit');
    this.#process.stdin?.end();
    await gone;
  }
}

async function until(holds: () => boolean, act: () => void): Promise<boolean> {
  for (let times = 0; times < SENDS && !holds(); times++) {
    act();
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return holds();
}

test('packets are lost in one direction, and only while that is cut', async (t) => {
  const obstacle = NamespaceNetwork.obstacle();
  if (obstacle !== null) return t.skip(obstacle);
  const name = NamespaceNetwork.make(2);
  const network = new NamespaceNetwork(name, 2);
  const [a, b] = [new Peer(network, 0), new Peer(network, 1)];
  try {
    await Promise.all([a.ready(), b.ready()]);
    const arrives = (from: Peer, to: Peer, place: number, text: string) =>
      until(
        () => to.heard.has(text),
        () => from.send(network.host(place), text),
      );
    assert.ok(await arrives(a, b, 1, 'first'));
    network.cut(0, 1);
    assert.ok(await arrives(b, a, 0, 'back'), 'the other direction still works');
    assert.ok(!(await arrives(a, b, 1, 'lost')));
    network.heal();
    assert.ok(await arrives(a, b, 1, 'again'));
    assert.ok(!b.heard.has('lost'), 'a lost packet does not arrive later');
  } finally {
    await Promise.all([a.end(), b.end()]);
    NamespaceNetwork.remove(name);
  }
});
