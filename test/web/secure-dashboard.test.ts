/**
 * Goal: over TLS and with tokens every element of the dashboard that acts does what it says, for users with the right,
 * and explains the refusal to others, while servers die and tokens change.
 * Method: real servers, a real browser; `SHOTS=FOLDER` keeps screenshots.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { issueToken } from '../../client/certificates/token-file.ts';
import { DevCluster } from '../../client/dev/dev-cluster.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { downloadFile } from '../../client/transfer/download.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import type { Role } from '../../wire/access.ts';
import { formatTokenFile, type KnownToken, parseTokenFile } from '../../wire/tokens.ts';
import { NO_BROWSER, newContext, type OpenPage, openPageIn, startBrowser } from './browser.ts';

const PHONE = { width: 360, height: 780 };
const DESK = { width: 1280, height: 900 };
const WAIT = { timeout: 120_000 };
const SERVERS = ['s1', 's2', 's3', 's4'];
/** The browser's own message about an answer that refuses: the page shows why. */
const REFUSAL = /Failed to load resource: the server responded with a status of 40[139]/;
/** Of a server that was killed, paused or disconnected. */
const SILENCE = /net::ERR_(?:CONNECTION_|INCOMPLETE_|EMPTY_|SOCKET_|FAILED)/;

describe('the dashboard over TLS and with tokens', { skip: NO_BROWSER }, () => {
  let cluster: DevCluster;
  let browser: Browser;
  /** A token belongs to one of its pages. */
  let context: BrowserContext;
  const opened: OpenPage[] = [];

  before(async () => {
    [cluster, browser] = await Promise.all([
      DevCluster.start({
        ports: await freePorts(SERVERS.length),
        data: null,
        isSecure: true,
        leaseMs: 2_000,
        clockSkewMs: 100,
        onUnexpectedEnd: ({ plan }, how) => assert.fail(`${plan.id} ${how}`),
      }),
      startBrowser(),
    ]);
    context = await newContext(browser, { ignoreHTTPSErrors: true });
    await cluster.client.command({ kind: 'volume-set', name: DevCluster.VOLUME, trashMs: 30 * 86_400_000 });
    await store('/letter', 'dear all\n');
    await cluster.client.command({
      kind: 'make-directory',
      place: { volume: DevCluster.VOLUME, path: '/folder' },
      ...{ mode: 0o755, uid: 0, gid: 0 },
    });
  });
  after(async () => {
    await browser?.close();
    await cluster?.stop();
  });

  const folder = (): string => cluster.credentials ?? assert.fail('It has no credentials');
  const tokenOf = (name: string): string => readFileSync(join(folder(), name, 'token'), 'utf8').trim();

  /** Changes the file of tokens, and makes servers read it. */
  function tokensBecome(change: (tokens: readonly KnownToken[]) => readonly KnownToken[]): void {
    for (const { plan, pid } of cluster.servers) {
      const path = join(folder(), plan.id, 'tokens.json');
      const file = parseTokenFile(readFileSync(path, 'utf8'));
      writeFileSync(path, formatTokenFile({ ...file, tokens: change(file.tokens) }));
      if (pid !== null) process.kill(pid, 'SIGHUP');
    }
  }

  function makeToken(name: string, role: Role, volumes: readonly string[] | null = null): string {
    const { text, known } = issueToken({ name, role, volumes }, null);
    tokensBecome((tokens) => [...tokens.filter((one) => one.name !== name), known]);
    return text;
  }

  async function open(viewport = DESK): Promise<Page> {
    const one = await openPageIn(context);
    opened.push(one);
    await one.page.setViewportSize(viewport);
    await one.page.goto(`${cluster.urls[0]}/#${encodeURIComponent('main:/letter')}`);
    return one.page;
  }

  async function enter(page: Page, token: string): Promise<void> {
    const dialog = page.getByRole('dialog', { name: 'Token' });
    await dialog.waitFor(WAIT);
    await dialog.getByLabel('Bearer token').fill(token);
    await page.keyboard.press('Enter');
  }

  async function as(name: string, viewport = DESK): Promise<Page> {
    const page = await open(viewport);
    await enter(page, tokenOf(name));
    await page.getByText('All 4 servers serve.').waitFor(WAIT);
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    return page;
  }

  async function store(path: string, text: string): Promise<void> {
    await uploadFile(cluster.client, DevCluster.VOLUME, path, Readable.from([Buffer.from(text)]));
  }

  async function textOf(path: string): Promise<string> {
    const { chunks } = await downloadFile(cluster.client, DevCluster.VOLUME, path);
    const parts: Uint8Array[] = [];
    for await (const chunk of chunks) parts.push(chunk);
    return Buffer.concat(parts).toString();
  }

  async function remove(...paths: string[]): Promise<void> {
    for (const path of paths)
      await cluster.client.command({ kind: 'unlink', place: { volume: DevCluster.VOLUME, path } });
  }

  async function shot(page: Page, name: string): Promise<void> {
    const { SHOTS } = process.env;
    if (SHOTS !== undefined) await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
  }

  const notice = (page: Page, text: string | RegExp) => page.locator('#notice').getByText(text).waitFor(WAIT);

  test('without a token nothing is shown, and the dialog says so; a wrong one is distinguished from none', async () => {
    const page = await open();
    const dialog = page.getByRole('dialog', { name: 'Token' });
    await dialog.getByText('This cluster requires a token.').waitFor(WAIT);
    await shot(page, 'no-token');
    assert.equal(await page.locator('.server').count(), 0);
    assert.equal(await page.getByRole('table').count(), 0);
    await enter(page, tokenOf('reader').replace(/...$/, 'xyz'));
    await dialog.getByText('The token is unknown, revoked or expired: use another one.').waitFor(WAIT);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ ...WAIT, state: 'hidden' });
    await page.getByText('Access denied').waitFor(WAIT);
    await page.getByRole('button', { name: 'Token' }).click();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Token' }).click();
    await enter(page, tokenOf('reader'));
    await page.getByText('All 4 servers serve.').waitFor(WAIT);
    // It stays as long as the tab does, and can be forgotten.
    await page.reload();
    await page.getByText('All 4 servers serve.').waitFor(WAIT);
    await page.getByRole('button', { name: 'Token' }).click();
    await dialog.getByRole('button', { name: 'Forget it' }).click();
    await dialog.getByText('This cluster requires a token.').waitFor(WAIT);
    await page.close();
  });

  test('a reader is shown no element whose action would be refused', async () => {
    const page = await as('reader');
    await page.getByText('as reader, role read').waitFor(WAIT);
    await shot(page, 'reader');
    await page.getByText('The trash has no files that were in main.').waitFor(WAIT);
    for (const name of [
      /^Drain/,
      /^Scrub/,
      /^Remove the replica/,
      'Add replica',
      'Empty the trash',
      'Create snapshot',
    ])
      assert.equal(await page.getByRole('button', { name }).count(), 0, String(name));
    assert.equal(await page.getByLabel('Upload files here').count(), 1);
    assert.equal(await page.getByLabel('Upload files here').isVisible(), false);
    const downloading = page.waitForEvent('download', WAIT);
    await page.getByRole('button', { name: 'Download letter' }).click();
    const chunks: Buffer[] = [];
    for await (const chunk of await (await downloading).createReadStream()) chunks.push(chunk as Buffer);
    assert.equal(Buffer.concat(chunks).toString(), 'dear all\n');
    await page.close();
  });

  test('a removed file is found in the trash, restored under its name or another, and deleted', async () => {
    for (const text of ['first', 'second']) {
      await store('/plan.txt', text);
      await remove('/plan.txt');
    }
    for (let place = 10; place < 40; place++) await store(`/folder/${place}`, `${place}`);
    await remove(...Array.from({ length: 30 }, (_, place) => `/folder/${place + 10}`));
    const page = await as('writer');
    const trash = page.getByRole('region', { name: 'Trash' });
    const items = trash.getByRole('list', { name: 'Trash' }).getByRole('listitem');
    await trash
      .getByText('main keeps removed files for 30 days. There are 32 files with 71 bytes.')
      .waitFor(WAIT);
    assert.equal(await items.count(), 25, 'a page');
    await trash.getByRole('button', { name: 'Next page' }).click();
    await trash.getByText('Page 2').waitFor(WAIT);
    await items.nth(6).waitFor(WAIT);
    assert.equal(await items.count(), 7);
    const plan = items.filter({ hasText: 'plan.txt' });
    assert.match(
      (await plan.first().textContent()) ?? '',
      /plan\.txt from main:\/5 bytes, removed .* by admin, kept until /,
    );
    await shot(page, 'trash');
    // By keyboard alone; the element with the focus is removed, and one near it gets the focus.
    await plan.filter({ hasText: '6 bytes' }).getByRole('button', { name: 'Restore /plan.txt' }).focus();
    await page.keyboard.press('Enter');
    await notice(page, 'Restored main:/plan.txt.');
    await page.getByRole('button', { name: 'Watch plan.txt' }).waitFor(WAIT);
    assert.equal(await textOf('/plan.txt'), 'second');
    assert.notEqual(await page.evaluate('document.activeElement.tagName'), 'BODY');
    // The name is taken now: another one is asked for, with a proposal.
    const dialog = page.getByRole('dialog', { name: 'Restore /plan.txt under another name' });
    await items.getByRole('button', { name: 'Restore /plan.txt' }).click();
    await dialog.getByText(/Choose another name\./).waitFor(WAIT);
    assert.equal(await dialog.getByLabel('Path in main').inputValue(), '/plan (restored).txt');
    await shot(page, 'trash-taken');
    await page.keyboard.press('Escape');
    await items.getByRole('button', { name: 'Restore under another name /plan.txt' }).click();
    await dialog.getByLabel('Path in main').fill('/new/plan of old.txt');
    await page.keyboard.press('Enter');
    await notice(page, 'Restored main:/new/plan of old.txt.');
    assert.equal(await textOf('/new/plan of old.txt'), 'first');
    await trash.getByLabel('Removed from').fill('folder/39/');
    await trash.getByRole('button', { name: 'Show the trash' }).click();
    await items.nth(1).waitFor({ ...WAIT, state: 'detached' });
    await items.getByRole('button', { name: 'Delete permanently /folder/39' }).click();
    const asked = page.getByRole('dialog', { name: 'Delete /folder/39 permanently?' });
    assert.equal(
      await page.evaluate('document.activeElement.textContent'),
      'Cancel',
      'nothing is lost by Enter',
    );
    await asked.getByRole('button', { name: 'Delete it permanently' }).click();
    await notice(page, '/folder/39 was deleted permanently.');
    await trash.getByText('The trash has no files that were main:/folder/39 or below it.').waitFor(WAIT);
    await trash.getByLabel('Removed from').fill('/');
    await page.keyboard.press('Enter');
    await items.nth(24).waitFor(WAIT);
    await trash.getByRole('button', { name: 'Empty the trash' }).click();
    await page
      .getByRole('dialog', { name: 'Empty the trash?' })
      .getByRole('button', { name: 'Empty it' })
      .click();
    await trash.getByText('The trash has no files that were in main.').waitFor(WAIT);
    await page.close();
  });

  test('a snapshot is made, browsed while files change, and removed', async () => {
    const page = await as('admin');
    const snapshots = page.getByRole('region', { name: 'Snapshots' });
    const files = page.getByRole('region', { name: 'Files' });
    await snapshots.getByText('There is no snapshot of main.').waitFor(WAIT);
    await snapshots.getByLabel('Name of the new snapshot').fill('monday');
    await page.keyboard.press('Enter');
    await notice(page, 'Created the snapshot main@monday of everything acknowledged before.');
    await store('/letter', 'dear some\n');
    await snapshots.getByRole('button', { name: 'Browse main@monday' }).click();
    await page.getByRole('table', { name: 'Files in main@monday:/' }).waitFor(WAIT);
    await files.getByText('main@monday: the volume at the time of the snapshot.').waitFor(WAIT);
    await shot(page, 'snapshot');
    assert.equal(await files.getByRole('button', { name: 'Watch letter' }).count(), 0);
    assert.equal(await files.getByLabel('Upload files here').isVisible(), false);
    const downloading = page.waitForEvent('download', WAIT);
    await files.getByRole('button', { name: 'Download letter' }).click();
    const chunks: Buffer[] = [];
    for await (const chunk of await (await downloading).createReadStream()) chunks.push(chunk as Buffer);
    assert.equal(Buffer.concat(chunks).toString(), 'dear all\n');
    await snapshots.getByLabel('Name of the new snapshot').fill('monday');
    await page.keyboard.press('Enter');
    await notice(page, /monday/);
    await snapshots.getByRole('button', { name: 'Remove main@monday' }).click();
    await page
      .getByRole('dialog', { name: 'Remove main@monday?' })
      .getByRole('button', { name: 'Delete it permanently' })
      .click();
    await notice(page, 'main@monday is removed.');
    // A user who browsed it sees the volume.
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    await snapshots.getByText('There is no snapshot of main.').waitFor(WAIT);
    await page.close();
  });

  test('changes of trash and snapshots by others appear by themselves, and move no user away from the present place', async () => {
    const page = await as('admin');
    const trash = page.getByRole('region', { name: 'Trash' });
    const snapshots = page.getByRole('region', { name: 'Snapshots' });
    const news = (text: RegExp) => page.getByRole('status').filter({ hasText: text }).waitFor(WAIT);
    const focused = () => page.evaluate('document.activeElement.getAttribute("aria-label")');
    const volume = DevCluster.VOLUME;
    await store('/shared-2', 'two');
    await remove('/shared-2');
    const restore = trash.getByRole('button', { name: 'Restore /shared-2' });
    await restore.waitFor(WAIT);
    await news(/1 file is new in the trash of main\./);
    await restore.focus();
    const topOf = async () => Math.round((await restore.boundingBox())?.y ?? -1);
    // New rows are added above it: first in sight, then further up than that.
    for (const [block, path] of [
      ['center', '/shared-1'],
      ['start', '/shared-0'],
    ] as const) {
      await page.evaluate(`document.activeElement.scrollIntoView({ block: '${block}' })`);
      const topPx = await topOf();
      await store(path, path);
      await remove(path);
      await trash.getByRole('button', { name: `Restore ${path}` }).waitFor(WAIT);
      assert.equal(await focused(), 'Restore /shared-2');
      assert.ok(Math.abs((await topOf()) - topPx) <= 2, 'it is where it was');
    }
    await cluster.client.command({ kind: 'snapshot-create', volume, name: 'shared' });
    await snapshots.getByRole('button', { name: 'Browse main@shared' }).waitFor(WAIT);
    await news(/Snapshot main@shared is new\./);
    assert.equal(await focused(), 'Restore /shared-2');
    await shot(page, 'shared');
    await page.setViewportSize(PHONE);
    await shot(page, 'shared-phone');
    await snapshots.getByRole('button', { name: 'Browse main@shared' }).click();
    await page.getByRole('table', { name: 'Files in main@shared:/' }).waitFor(WAIT);
    await cluster.client.command({ kind: 'snapshot-remove', volume, name: 'shared' });
    // A user who browsed it sees the volume.
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    await news(/Snapshot main@shared is gone\./);
    await restore.focus();
    await cluster.client.command({ kind: 'trash-empty', volume, countMax: 100 });
    await restore.waitFor({ ...WAIT, state: 'detached' });
    await news(/gone from the trash of main\./);
    assert.equal(
      await page.evaluate('document.activeElement.id'),
      'trash-path',
      'no button is left to have it',
    );
    await page.close();
  });

  test('a user who may change files browses, drops and picks files, and watches them', async () => {
    const page = await as('writer');
    await page.getByText('as writer, role write').waitFor(WAIT);
    assert.equal(await page.getByRole('button', { name: /^Drain/ }).count(), 0);
    await page.getByRole('button', { name: 'Open folder folder' }).click();
    await page.getByText('This folder is empty.').waitFor(WAIT);
    await page.evaluate(`{
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(['dropped'], 'a & b?.txt'));
      document.querySelector('#upload-form').dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
    }`);
    await page.getByText('a & b?.txt is stored: a majority has it on disk.').waitFor(WAIT);
    const kept = await downloadFile(cluster.client, DevCluster.VOLUME, '/folder/a & b?.txt');
    const chunks: Uint8Array[] = [];
    for await (const chunk of kept.chunks) chunks.push(chunk);
    assert.equal(Buffer.concat(chunks).toString(), 'dropped');
    await page
      .getByLabel('Upload files here')
      .setInputFiles({ name: 'picked.txt', mimeType: 'text/plain', buffer: Buffer.from('picked') });
    await page.getByRole('button', { name: 'Watch picked.txt' }).click();
    await page
      .getByText(/main:\/folder\/picked.txt/)
      .first()
      .waitFor(WAIT);
    await shot(page, 'writer');
    await page.getByRole('button', { name: 'Top folder of main' }).click();
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    await page.close();
  });

  test('an administrator drains, adds, scrubs, and moves replicas', async () => {
    const page = await as('admin');
    await page.getByText('as admin, role admin').waitFor(WAIT);
    const replicas = page.getByRole('list', { name: 'Replicas' }).getByRole('listitem');
    await replicas.nth(2).waitFor(WAIT);
    const holders = ((await replicas.allTextContents()).join(' ').match(/\bs\d|s\d/g) ?? []) as string[];
    const free = SERVERS.find((id) => !holders.includes(id)) ?? '';
    await page.getByLabel('Another replica on').selectOption(free);
    await page.getByRole('button', { name: 'Add replica' }).click();
    await notice(page, new RegExp(`main:/letter is on .*${free}.* now`));
    await replicas.nth(3).waitFor(WAIT);
    await page.getByRole('button', { name: `Remove the replica on ${free}` }).click();
    await replicas.nth(3).waitFor({ ...WAIT, state: 'detached' });
    await page.getByRole('button', { name: `Scrub ${free}` }).click();
    await notice(page, `${free} reads its whole disk`);
    await page.getByRole('button', { name: `Drain ${free}` }).click();
    await notice(page, `${free} is being drained.`);
    await page.locator('.server .state', { hasText: 'drain' }).waitFor(WAIT);
    await shot(page, 'admin');
    await page.getByRole('button', { name: `End drain ${free}` }).click();
    await notice(page, `${free} takes replicas again.`);
    await page.getByRole('button', { name: `Drain ${free}` }).waitFor(WAIT);
    await page.close();
  });

  test('a revoked right is refused with the reason, and the page shows what is left', async () => {
    const token = makeToken('deputy', 'admin');
    const page = await open();
    await enter(page, token);
    await page.getByText('as deputy, role admin').waitFor(WAIT);
    tokensBecome((tokens) => tokens.map((one) => (one.name === 'deputy' ? { ...one, role: 'write' } : one)));
    await page.getByText('as deputy, role write').waitFor(WAIT);
    assert.equal(await page.getByRole('button', { name: /^Drain/ }).count(), 0);
    await page.locator('[aria-label="Scrub s1"]').waitFor({ ...WAIT, state: 'attached' });
    // As a page that the stream has not reached yet; it sends again at any moment.
    await page.evaluate(`{
      document.body.dataset.role = 'admin';
      document.querySelector('[aria-label="Scrub s1"]').click();
    }`);
    const dialog = page.getByRole('dialog', { name: 'Token' });
    await dialog.getByText('"deputy" has the role write; this request needs the role admin.').waitFor(WAIT);
    await shot(page, 'refused');
    await page.close();
  });

  test('a token that ends, or is revoked, while the page is open ends what it shows, and another continues', async () => {
    const hasEnded = (of: Page) =>
      of
        .getByRole('dialog', { name: 'Token' })
        .getByText('The token is unknown, revoked or expired: use another one.');
    let page = await open();
    // A token may end before a slow machine shows what it lets in: then another page gets one that is valid for longer.
    for (let lifeMs = 3_000; ; lifeMs *= 2) {
      const { text, known } = issueToken({ name: 'visitor', role: 'read', volumes: null }, lifeMs);
      tokensBecome((tokens) => [...tokens.filter(({ name }) => name !== known.name), known]);
      await enter(page, text);
      const served = page.getByText('All 4 servers serve.');
      await served.or(hasEnded(page)).first().waitFor(WAIT);
      if (await served.isVisible()) break;
      await page.close();
      page = await open();
    }
    await hasEnded(page).waitFor(WAIT);
    await page.getByText('Access denied').waitFor(WAIT);
    await enter(page, makeToken('guest', 'read'));
    await page.getByText('as guest, role read').waitFor(WAIT);
    tokensBecome((tokens) => tokens.filter(({ name }) => name !== 'guest'));
    await hasEnded(page).waitFor(WAIT);
    await page.close();
  });

  test('a token for one volume gets an explanation why it sees nothing', async () => {
    const page = await open();
    await enter(page, makeToken('scoped', 'write', ['main']));
    await page
      .getByRole('dialog', { name: 'Token' })
      .getByText(/"scoped" may only use the volumes main/)
      .waitFor(WAIT);
    await page.close();
  });

  test('it continues with another server over TLS, through kill, pause and disconnection', async () => {
    const page = await as('admin');
    await store('/hopped', 'on');
    await remove('/hopped');
    await page.getByRole('button', { name: 'Show the trash' }).click();
    await page.getByRole('button', { name: 'Restore /hopped' }).waitFor(WAIT);
    await page.getByRole('button', { name: 'Kill s1' }).click();
    await page.getByText('3 of 4 servers serve, which is a majority; s1 does not.').waitFor(WAIT);
    await page
      .locator('.server:has(.told:not([hidden]))')
      .getByText(/^s[234]$/)
      .waitFor(WAIT);
    await page.getByRole('button', { name: 'Restore /hopped' }).click();
    await notice(page, 'Restored main:/hopped.');
    await page.getByRole('button', { name: 'Restart s1' }).click();
    await page.getByText('All 4 servers serve.').waitFor(WAIT);
    for (const [act, undo] of [
      ['Pause', 'Resume'],
      ['Cut off', 'Reconnect'],
    ] as const) {
      await page.getByRole('button', { name: `${act} s1` }).click();
      await page.getByText('3 of 4 servers serve').waitFor(WAIT);
      if (act === 'Pause') await shot(page, 'hopped');
      await page.getByRole('button', { name: `${undo} s1` }).click();
      await page.getByText('All 4 servers serve.').waitFor(WAIT);
    }
    await page.close();
  });

  test('by keyboard alone a token is entered, and it all fits a telephone', async () => {
    const long = `/a-name-that-${'is-long-'.repeat(20)}`;
    await store(long, 'long');
    await remove(long);
    const page = await open(PHONE);
    const dialog = page.getByRole('dialog', { name: 'Token' });
    await dialog.waitFor(WAIT);
    await shot(page, 'phone-token');
    assert.equal(await page.evaluate('document.activeElement.id'), 'token-input');
    await page.keyboard.type(tokenOf('admin'));
    await page.keyboard.press('Enter');
    await page.getByText('All 4 servers serve.').waitFor(WAIT);
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    await page.getByRole('button', { name: 'Restore /a-name-that' }).waitFor(WAIT);
    await shot(page, 'phone');
    assert.ok(((await page.evaluate('document.documentElement.scrollWidth')) as number) <= PHONE.width);
    await page.getByRole('button', { name: 'Token' }).focus();
    await page.keyboard.press('Enter');
    await dialog.waitFor(WAIT);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ ...WAIT, state: 'hidden' });
    assert.equal(await page.evaluate('document.activeElement.id'), 'open-token', 'focus returns');
    await page.close();
  });

  test('the browser reported no errors but refusals and servers that were silent', () => {
    const errors = opened.flatMap((one) => one.errors);
    assert.deepEqual(
      [...new Set(errors.filter((error) => !REFUSAL.test(error) && !SILENCE.test(error)))],
      [],
    );
    assert.ok(errors.filter((error) => REFUSAL.test(error)).length < 40, 'a refused page asks rarely');
  });
});
