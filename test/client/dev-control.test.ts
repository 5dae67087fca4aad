import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DemoReporter } from '../../client/demo/demo-reporter.ts';
import { DevControl } from '../../client/dev/dev-control.ts';
import type { ServerProcess } from '../../client/dev/server-process.ts';
import { StreamEventReader } from '../../wire/sse.ts';

/** A server that records what is done to it. */
class Puppet {
  readonly plan = { id: 's1', url: 'http://127.0.0.1:7401' };
  readonly done: string[] = [];
  readonly pid = 1;
  state = 'running';
  #changed: () => void = () => undefined;

  onChange(listener: () => void): void {
    this.#changed = listener;
  }

  async kill(): Promise<void> {
    this.done.push('kill');
    this.state = 'dead';
    this.#changed();
  }

  pause(): void {
    this.done.push('pause');
  }
}

describe('requests of the dashboard to the process that started the servers', () => {
  let control: DevControl;
  let url: string;
  let key: string;
  const puppet = new Puppet();

  before(async () => {
    control = await DevControl.start();
    control.watchServers([puppet as unknown as ServerProcess]);
    [url, key] = control.address.split('#') as [string, string];
  });
  after(() => control.close());

  const post = (path: string, headers: Record<string, string>) =>
    fetch(`${url}${path}`, { method: 'POST', headers });

  test('without the secret, or with a wrong one, a request has no effect', async () => {
    for (const headers of [{}, { authorization: 'Bearer other' }, { authorization: `Basic ${key}` }]) {
      assert.equal((await post('/servers/s1/kill', headers as Record<string, string>)).status, 401);
    }
    assert.deepEqual(puppet.done, []);
  });

  test('only pages of its own servers may send requests', async () => {
    for (const [origin, allowed] of [
      ['http://127.0.0.1:7401', true],
      ['http://localhost:7401', true],
      ['http://127.0.0.1:7402', false],
      ['https://evil.example', false],
    ] as const) {
      const answer = await fetch(`${url}/servers/s1/kill`, { method: 'OPTIONS', headers: { origin } });
      assert.equal(answer.headers.get('access-control-allow-origin'), allowed ? origin : null, origin);
      assert.equal(answer.status, allowed ? 204 : 403);
    }
  });

  test('it executes known requests, and answers unknown ones with an error', async () => {
    const authorization = `Bearer ${key}`;
    assert.equal((await post('/servers/s1/pause', { authorization })).status, 204);
    for (const path of ['/servers/s1/explode', '/servers/s9/kill', '/servers/../kill', '/']) {
      assert.equal((await post(path, { authorization })).status, 404, path);
    }
    assert.deepEqual(puppet.done, ['pause']);
  });

  test("a listener receives the servers' states and the story, and may continue the story", async () => {
    const authorization = `Bearer ${key}`;
    const response = await fetch(`${url}/events`, { headers: { authorization } });
    const reader = new StreamEventReader();
    const decoder = new TextDecoder();
    const story = new DemoReporter(['First', 'Second'], {
      control,
      say: () => undefined,
      beforeAct: (_title, next) => next,
      waits: true,
    });
    const played = story.act('First', async () => story.say('  it begins'));
    const seen: string[] = [];
    for await (const piece of response.body as AsyncIterable<Uint8Array>) {
      for (const { data } of reader.push(decoder.decode(piece, { stream: true }))) {
        const { servers, story: told } = JSON.parse(data);
        if (told?.waits) await post('/next', { authorization });
        if (told?.acts[0].state === 'done' && servers[0].state === 'running') {
          await post('/servers/s1/kill', { authorization });
        }
        seen.push(`${servers[0].state} ${told?.acts[0].state} ${told?.acts[0].lines.join() ?? ''}`);
      }
      if (seen.at(-1) === 'dead done it begins') break;
    }
    await played;
    assert.ok(seen.includes('running now it begins'));
    assert.equal(story.reports[1]?.state, 'to-come');
  });
});
