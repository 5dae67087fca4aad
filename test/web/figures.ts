import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Browser, Page } from 'playwright-core';
import { runDemo } from '../../client/demo/run-demo.ts';
import { DevCluster } from '../../client/dev/dev-cluster.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { NO_BROWSER, openPage, startBrowser } from './browser.ts';

/**
 * Plays the demo and takes the pictures of docs/demo.md meanwhile, and those of docs/dashboard.md of a cluster with a
 * trash: `npm run figures`, or `npm run figures kept` for the latter alone. All that they show really occurred.
 */
const FOLDER = join(import.meta.dirname, '../../docs/figures');
const DESK = { width: 1180, height: 860 };
const PHONE = { width: 360, height: 780 };
const WAIT = { timeout: 60_000 };

async function main(): Promise<void> {
  if (NO_BROWSER !== false) throw new Error(NO_BROWSER);
  await mkdir(FOLDER, { recursive: true });
  const browser = await startBrowser();
  try {
    await drawKept(browser);
    if (process.argv[2] !== 'kept') await drawDemo(browser);
  } finally {
    await browser.close();
  }
}

/** A volume with removed files, and with snapshots. */
async function drawKept(browser: Browser): Promise<void> {
  const cluster = await DevCluster.start({
    ports: await freePorts(3),
    data: null,
    leaseMs: 3_000,
    clockSkewMs: 100,
    onUnexpectedEnd: ({ plan }, how) => process.stderr.write(`${plan.id} ${how}\n`),
  });
  try {
    const { client } = cluster;
    const volume = DevCluster.VOLUME;
    const options = { mode: 0o755, uid: 0, gid: 0 };
    await client.command({ kind: 'volume-set', name: volume, trashMs: 30 * 86_400_000 });
    for (const path of ['/letters', '/accounts'])
      await client.command({ kind: 'make-directory', place: { volume, path }, ...options });
    for (const [path, bytes] of [
      ['/letters/to-anna.txt', 5_210],
      ['/accounts/2025.csv', 812_400],
      ['/accounts/2026.csv', 240_113],
      ['/journal.md', 33_870],
    ] as const)
      await uploadFile(client, volume, path, Readable.from([Buffer.alloc(bytes, path)]));
    await client.command({ kind: 'snapshot-create', volume, name: 'before-spring' });
    for (const path of ['/letters/to-anna.txt', '/accounts/2025.csv', '/journal.md'])
      await client.command({ kind: 'unlink', place: { volume, path } });
    await client.command({ kind: 'snapshot-create', volume, name: 'monday' });
    const { page } = await openPage(browser, { viewport: DESK, colorScheme: 'light' });
    await page.goto(cluster.urls[0] as string);
    await page.getByText('All 3 servers serve.').waitFor(WAIT);
    await page.getByRole('img', { name: /Local reads per second \d/ }).waitFor(WAIT);
    await page.getByRole('button', { name: 'Browse main@monday' }).waitFor(WAIT);
    await page.getByRole('button', { name: 'Restore /journal.md' }).waitFor(WAIT);
    await shot(page, 'dashboard-kept', '#trash', '#snapshots');
  } finally {
    await cluster.stop();
  }
}

async function drawDemo(browser: Browser): Promise<void> {
  const pictures: Promise<unknown>[] = [];
  /** Acts that begin when the pictures of those before are taken. */
  const gates = new Map(
    ['No majority', 'A suspended primary', 'Verdict'].map((act) => [act, Promise.withResolvers<void>()]),
  );
  const result = await runDemo({
    kills: 1,
    // Longer than usual, so that there is time to take a picture of it.
    leaseMs: 3_000,
    clockSkewMs: 100,
    directory: null,
    say: (text) => process.stderr.write(`${text}\n`),
    opened: (stage) => {
      // If they fail, the demo need not be played to its end.
      const taken = takePictures(stage.cluster.urls[0] as string).finally(() => {
        for (const gate of gates.values()) gate.resolve();
      });
      taken.catch(() => undefined);
      pictures.push(taken);
    },
    beforeAct: (title) => before(title),
    signal: new AbortController().signal,
  });
  await Promise.all(pictures);
  if (!result.ok) throw new Error('The demo failed: its pictures prove nothing');

  /** Loads are shown for a while before a primary dies, and the end of an act before the next. */
  async function before(title: string): Promise<void> {
    await gates.get(title)?.promise;
    await delay(title === 'Kill the primary' ? 9_000 : 1_500);
  }

  async function takePictures(url: string): Promise<void> {
    const watched = `${url}/#${encodeURIComponent('main:/journal')}`;
    const { page } = await openPage(browser, { viewport: DESK, colorScheme: 'light' });
    const dark = await openPage(browser, { viewport: DESK, colorScheme: 'dark' });
    const phone = await openPage(browser, { viewport: PHONE, colorScheme: 'light' });
    for (const one of [page, dark.page, phone.page]) await one.goto(watched);
    const act = (title: string) => now(page, title);
    await act('Kill the primary');
    await page.getByText('has no primary: writes wait').waitFor(WAIT);
    await shot(page, 'demo-writes-wait', '#story', '#file');
    await act('Restart of the killed server');
    await page.getByText(/Last pause/).waitFor(WAIT);
    await page
      .getByText(/the lease of s\d had ended/)
      .first()
      .waitFor(WAIT);
    await delay(800);
    await shot(page, 'demo-gap', '#traffic', '#traffic');
    await shot(dark.page, 'dashboard-dark', '#servers', '#traffic');
    await shot(phone.page, 'dashboard-phone');
    gates.get('No majority')?.resolve();
    await act('No majority');
    await page.getByText('which is no majority').waitFor(WAIT);
    await delay(1_500);
    await shot(page, 'demo-no-majority', '.masthead', '#servers');
    gates.get('A suspended primary')?.resolve();
    await act('A suspended primary');
    await page.getByText(/every server has what/).waitFor(WAIT);
    await delay(500);
    await shot(page, 'demo-fencing', '#story', '#story');
    gates.get('Verdict')?.resolve();
  }
}

/** Waits until the story is in this act. */
async function now(page: Page, title: string): Promise<void> {
  await page.locator('#story li[data-state=now]', { hasText: title }).waitFor(WAIT);
}

/** The whole view, or from one element to another. */
async function shot(page: Page, name: string, from?: string, to?: string): Promise<void> {
  const path = join(FOLDER, `${name}.png`);
  if (from === undefined || to === undefined) {
    await page.screenshot({ path });
    return;
  }
  const [first, last] = await Promise.all([page.locator(from).boundingBox(), page.locator(to).boundingBox()]);
  if (first === null || last === null) throw new Error(`There is no ${from} or ${to} to be seen`);
  const margin = 14;
  const left = Math.min(first.x, last.x) - margin;
  const clip = {
    x: left,
    y: first.y - margin,
    width: Math.max(first.x + first.width, last.x + last.width) - left + margin,
    height: last.y + last.height - first.y + 2 * margin,
  };
  await page.screenshot({ path, clip, fullPage: true });
}

await main();
