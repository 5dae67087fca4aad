import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { SlotsLoad } from '../../client/demo/slots-load.ts';
import { DevCluster } from '../../client/dev/dev-cluster.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { NO_BROWSER, openPage, startBrowser } from './browser.ts';

const PHONE = { width: 360, height: 780 };
const DESK = { width: 1280, height: 900 };
const WAIT = { timeout: 120_000 };
const SENTENCE = '#file-sentence';
/** An event of some time ago has a similar text. */
const IS_LED = { hasText: 'is the primary of main:/slots' };

describe('the dashboard in a real browser', { skip: NO_BROWSER }, () => {
  let cluster: DevCluster;
  let browser: Browser;
  let page: Page;
  let errors: string[];
  const enough = new AbortController();
  let load: Promise<void> = Promise.resolve();

  before(async () => {
    [cluster, browser] = await Promise.all([
      DevCluster.start({
        ports: await freePorts(3),
        data: null,
        leaseMs: 2_000,
        clockSkewMs: 100,
        onUnexpectedEnd: ({ plan }, how) => assert.fail(`${plan.id} ${how}`),
      }),
      startBrowser(),
    ]);
    await uploadFile(cluster.client, DevCluster.VOLUME, '/greeting', Readable.from([Buffer.from('hello\n')]));
    const { attributes } = await cluster.client.command({
      kind: 'create-file',
      place: { volume: DevCluster.VOLUME, path: '/slots' },
      ...{ mode: 0o644, uid: 0, gid: 0, exclusive: true },
    });
    const { inode } = attributes;
    const slots = new SlotsLoad(
      cluster.client.openFile(inode),
      cluster.client.openFile(inode),
      () => undefined,
      // Enough for a curve.
      { writeMs: 50, readMs: 50 },
    );
    load = slots.run(enough.signal);
    ({ page, errors } = await openPage(browser, { viewport: DESK, colorScheme: 'light' }));
    await page.goto(`${cluster.urls[0]}/#${encodeURIComponent('main:/slots')}`);
  });
  after(async () => {
    enough.abort();
    await browser?.close();
    await load;
    await cluster?.stop();
  });

  test('every element is found by its role and name', async () => {
    await page.getByRole('status').getByText('All 3 servers serve.').waitFor(WAIT);
    const regions = ['Servers', 'Watched file', 'Traffic', 'Events', 'Files', 'Trash', 'Snapshots'];
    for (const name of regions) {
      await page.getByRole('region', { name, exact: true }).waitFor(WAIT);
    }
    for (const id of ['s1', 's2', 's3']) {
      const actions = page.getByRole('group', { name: `Actions for ${id}` });
      for (const act of ['Kill', 'Pause', 'Cut off', 'Drain', 'Scrub']) {
        await actions.getByRole('button', { name: `${act} ${id}` }).waitFor(WAIT);
      }
      await page.getByRole('meter', { name: `Disk of ${id} in use` }).waitFor(WAIT);
    }
    assert.match((await page.locator('.facts').first().textContent()) ?? '', /Clock.*Disk.*GiB free of/);
    await page.getByRole('list', { name: 'Replicas' }).getByText('primary').waitFor(WAIT);
    assert.equal(await page.getByRole('list', { name: 'Replicas' }).getByRole('listitem').count(), 3);
    assert.match(
      (await page.locator(SENTENCE).textContent()) ?? '',
      /^s[123] is the primary of main:\/slots in epoch \d+/,
    );
    assert.match((await page.locator('.seal').textContent()) ?? '', /epoch \ds[123]\d\.\d s/);
    for (const name of [/Acknowledged writes per second \d/, /Local reads per second \d/]) {
      await page.getByRole('img', { name }).waitFor(WAIT);
    }
    await page.getByRole('log', { name: 'Events' }).getByText('has started').first().waitFor(WAIT);
    await page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
    assert.ok(await page.getByLabel('Upload files here').isVisible());
  });

  test('it draws when something has changed, and not with every frame', async () => {
    await page.locator(SENTENCE, IS_LED).waitFor(WAIT);
    const frames = (await page.evaluate(FRAMES)) as number;
    // States arrive four times per second. A page that draws with every frame requests 120.
    assert.ok(frames >= 1 && frames <= 30, `${frames} frames in two seconds`);
  });

  test('a volume with a catalog of its own is shown with the members and the primary of that', async () => {
    const settings = { replicas: 3, objectBytes: 65_536 };
    await cluster.client.command({ kind: 'catalog-create', name: 'own', ...settings });
    const catalogs = page.locator('#catalogs');
    assert.ok(await catalogs.isHidden());
    await page.getByRole('button', { name: 'Top folder of main' }).click();
    const volumes = page.getByLabel('Volume', { exact: true });
    await volumes.getByRole('option', { name: 'own' }).waitFor({ ...WAIT, state: 'attached' });
    await volumes.selectOption('own');
    await catalogs
      .getByText(/^own has a catalog of its own, on s1, s2, s3; its primary is s[123]\.$/)
      .waitFor(WAIT);
    await volumes.selectOption('main');
    await catalogs.waitFor({ ...WAIT, state: 'hidden' });
    await cluster.client.command({ kind: 'volume-remove', name: 'own' });
  });

  test('a file is uploaded, listed, and downloaded byte for byte', async () => {
    const buffer = Buffer.from('from a browser\n'.repeat(1_000));
    await page
      .getByLabel('Upload files here')
      .setInputFiles({ name: 'a letter.txt', mimeType: 'text/plain', buffer });
    await page.getByText('a letter.txt is stored: a majority has it on disk.').waitFor(WAIT);
    const downloading = page.waitForEvent('download', WAIT);
    await page.getByRole('button', { name: 'Download a letter.txt' }).click();
    const chunks: Buffer[] = [];
    for await (const chunk of await (await downloading).createReadStream()) chunks.push(chunk as Buffer);
    assert.deepEqual(Buffer.concat(chunks), buffer);
  });

  test('a replica is removed and added', async () => {
    const replicas = page.getByRole('list', { name: 'Replicas' }).getByRole('listitem');
    const backup =
      ((await replicas.filter({ hasText: 'backup' }).first().textContent()) ?? '').match(/s[123]/)?.[0] ?? '';
    await page.getByRole('button', { name: `Remove the replica on ${backup}` }).click();
    await replicas.nth(2).waitFor({ ...WAIT, state: 'detached' });
    await page.getByLabel('Another replica on').selectOption(backup);
    await page.getByRole('button', { name: 'Add replica' }).click();
    await replicas.nth(2).waitFor(WAIT);
    await replicas.filter({ hasText: new RegExp(`${backup}.*(current|primary)`) }).waitFor(WAIT);
  });

  test('every element is reached by keyboard alone, with a visible focus', async () => {
    await page.reload();
    await page.locator(SENTENCE, IS_LED).waitFor(WAIT);
    await page.getByRole('button', { name: 'Watch greeting' }).waitFor(WAIT);
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Skip to the cluster');
    const reached = new Set<string>();
    for (let presses = 0; presses < 80; presses++) {
      await page.keyboard.press('Tab');
      const name = (await page.evaluate(
        'document.activeElement.getAttribute("aria-label") ?? document.activeElement.id',
      )) as string;
      const outline = await page.evaluate('getComputedStyle(document.activeElement).outlineStyle');
      if (name !== '') assert.notEqual(outline, 'none', `${name} shows that it has the focus`);
      reached.add(name);
      if (name === 'upload-input') break;
    }
    const wanted = [
      'open-token',
      'Kill s1',
      'Scrub s3',
      'watch-path',
      'Watch greeting',
      'happening-list',
      'upload-input',
    ];
    assert.deepEqual(
      wanted.filter((name) => !reached.has(name)),
      [],
    );
    await page.getByRole('button', { name: 'Watch greeting' }).focus();
    await page.keyboard.press('Enter');
    await page
      .getByText(/main:\/greeting (is at rest|has no primary)|primary of main:\/greeting/)
      .waitFor(WAIT);
    await page.getByLabel('Watch', { exact: true }).fill('main:/slots');
    await page.keyboard.press('Enter');
    await page.locator(SENTENCE, IS_LED).waitFor(WAIT);
  });

  test('it fits a telephone, in both colour schemes, with readable letters', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const phone = await openPage(browser, {
        viewport: PHONE,
        colorScheme,
        reducedMotion: 'no-preference',
      });
      await phone.page.goto(`${cluster.urls[1]}/#${encodeURIComponent('main:/slots')}`);
      await phone.page.locator(SENTENCE, IS_LED).waitFor(WAIT);
      await phone.page.getByRole('table', { name: 'Files in main:/' }).waitFor(WAIT);
      assert.ok(
        ((await phone.page.evaluate('document.documentElement.scrollWidth')) as number) <= PHONE.width,
      );
      for (const selector of [
        'body',
        '#teller',
        '.facts dt',
        '.seal .epoch',
        '.replica .what',
        '.when',
        '[data-act=kill]',
        '#trash-about',
        '#snapshots-none',
      ]) {
        const ratio = (await phone.page.evaluate(`(${CONTRAST})(${JSON.stringify(selector)})`)) as number;
        assert.ok(ratio >= 4.5, `${selector} in ${colorScheme} has a contrast of ${ratio.toFixed(2)}`);
      }
      assert.deepEqual(phone.errors, []);
      await phone.page.context().close();
    }
  });

  test('it survives the kill of its own server, and shows how long writes waited', async () => {
    const told = page.locator('.server:has(.told:not([hidden]))').getByRole('heading');
    const teller = (await told.textContent()) ?? '';
    // The test is about the primary's death: its event reaches the page.
    await page.goto(`${await leadingUrl()}/#${encodeURIComponent('main:/slots')}`);
    await page.locator(SENTENCE, IS_LED).waitFor(WAIT);
    const killed = ((await page.locator(SENTENCE).textContent()) ?? teller).slice(0, 2);
    await page.waitForTimeout(2_500); // a load is steady after two seconds
    const colour = await page.evaluate('getComputedStyle(document.body).borderTopColor');
    await page.getByRole('button', { name: `Kill ${killed}` }).click();
    await page.getByText(/2 of 3 servers serve, which is a majority/).waitFor(WAIT);
    await page.locator('#teller').getByText('connected to').waitFor(WAIT);
    assert.notEqual(await told.textContent(), killed, 'Another server reports it');
    const log = page.getByRole('log');
    await log
      .getByText(new RegExp(`^s[123] lost its connection to ${killed}`))
      .first()
      .waitFor(WAIT);
    await log
      .getByText(
        new RegExp(
          `became primary of main:/slots in epoch \\d+: the lease of ${killed} had ended \\d+ ms before`,
        ),
      )
      .waitFor(WAIT);
    await page.getByText(/Last pause: \d+\.\d s without writes/).waitFor(WAIT);
    assert.match((await page.locator(SENTENCE).textContent()) ?? '', /^s[123] is the primary/);
    await page.waitForTimeout(1_000); // the colour changes slowly
    assert.notEqual(
      await page.evaluate('getComputedStyle(document.body).borderTopColor'),
      colour,
      'A new epoch, a new colour',
    );
    const buffer = Buffer.from('to a server that has not sent this page');
    await page
      .getByLabel('Upload files here')
      .setInputFiles({ name: 'after.txt', mimeType: 'text/plain', buffer });
    await page.getByText('after.txt is stored: a majority has it on disk.').waitFor(WAIT);
    await page.getByRole('button', { name: `Restart ${killed}` }).click();
    await page.getByText('All 3 servers serve.').waitFor(WAIT);
  });

  test('a server is paused and disconnected, and afterwards reports what it missed', async () => {
    for (const [act, undo, word] of [
      ['Cut off', 'Reconnect', 'cut off'],
      ['Pause', 'Resume', 'paused'],
    ] as const) {
      const victim = page.locator('.server:has(.told[hidden])').first();
      const id = (await victim.getByRole('heading').textContent()) ?? '';
      await page.getByRole('button', { name: `${act} ${id}` }).click();
      await page.locator('.server .state', { hasText: word }).waitFor(WAIT);
      await page.getByText(/2 of 3 servers serve/).waitFor(WAIT);
      // A pause of less than a second is not reported.
      if (act === 'Pause') await page.waitForTimeout(1_500);
      await page.getByRole('button', { name: `${undo} ${id}` }).click();
      await page.getByText('All 3 servers serve.').waitFor(WAIT);
    }
    await page
      .getByRole('log')
      .getByText(/s[123] was paused for \d/)
      .first()
      .waitFor(WAIT);
  });

  test('and the browser reported no error', () => {
    assert.deepEqual(errors, []);
  });

  async function leadingUrl(): Promise<string> {
    const { primary } = await cluster.client.info(DevCluster.VOLUME, '/slots');
    return cluster.servers.find(({ plan }) => plan.id === primary)?.plan.url ?? '';
  }
});

/** Runs in the page: how many frames it requests in two seconds. */
const FRAMES = `(async () => {
  const original = window.requestAnimationFrame;
  let frames = 0;
  window.requestAnimationFrame = (draw) => {
    frames++;
    return original.call(window, draw);
  };
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  window.requestAnimationFrame = original;
  return frames;
})()`;

/** Runs in the page: contrast of an element's text with its background, as WCAG 2 counts it. */
const CONTRAST = `(selector) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const pixel = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((one) => {
      const share = one / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  const style = getComputedStyle(element);
  const text = pixel(element instanceof SVGElement ? style.fill : style.color);
  let behind = element;
  while (behind !== null && pixel(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
  const back = pixel(getComputedStyle(behind ?? document.documentElement).backgroundColor);
  const [light, dark] = [luminance(text), luminance(back)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}`;
