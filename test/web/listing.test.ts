import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { ask } from '../http/ask.ts';
import { FakeCluster } from '../http/fake-services.ts';
import { NO_BROWSER, openPage, startBrowser } from './browser.ts';

const PHONE = { width: 360, height: 780 };
const HOSTILE = `<img src=x onerror="document.title='taken'">&'.txt`;

describe('the page of a directory in a real browser', { skip: NO_BROWSER }, () => {
  let cluster: FakeCluster;
  let browser: Browser;
  let base: string;

  before(async () => {
    [cluster, browser] = await Promise.all([FakeCluster.start(), startBrowser()]);
    base = cluster.server(0).url;
    await ask(base, 'PUT', '/v1/files/main/docs/below/?parents=true');
    await ask(base, 'PUT', `/v1/files/main/docs/${encodeURIComponent(HOSTILE)}`, { body: 'harmless' });
  });
  after(async () => {
    await browser?.close();
    await cluster?.close();
  });

  const contentsOf = async (name: string): Promise<string> =>
    (await ask(base, 'GET', `/v1/files/main/docs/${encodeURIComponent(name)}`)).text;

  test('names are text, and link to what they name, on a phone as well', async () => {
    const { page, errors } = await openPage(browser, { viewport: PHONE });
    await page.goto(`${base}/v1/files/main/docs/`);
    assert.equal(await page.title(), 'main/docs/');
    assert.deepEqual(await page.getByRole('link').allTextContents(), ['..', HOSTILE, 'below/']);
    const width = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(Number(width) <= PHONE.width, `${width} px wide`);
    await page.getByRole('link', { name: 'below/' }).click();
    assert.equal(await page.title(), 'main/docs/below/');
    await page.getByRole('link', { name: '..' }).click();
    assert.equal(await page.title(), 'main/docs/');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: HOSTILE }).click(),
    ]);
    assert.equal(new URL(download.url()).pathname, `/v1/files/main/docs/${encodeURIComponent(HOSTILE)}`);
    assert.deepEqual(errors, []);
    await page.context().close();
  });

  test('a form uploads without scripts', async () => {
    const { page } = await openPage(browser, { javaScriptEnabled: false });
    await page.goto(`${base}/v1/files/main/docs/`);
    await page.getByLabel('Upload files here').setInputFiles([
      { name: 'one.txt', mimeType: 'text/plain', buffer: Buffer.from('first') },
      { name: 'zwei ü.txt', mimeType: 'text/plain', buffer: Buffer.from('second') },
    ]);
    await page.getByRole('button', { name: 'Upload', exact: true }).click();
    await page.getByRole('link', { name: 'zwei ü.txt' }).waitFor();
    assert.equal(page.url(), `${base}/v1/files/main/docs/`, 'A reload sends nothing again');
    assert.deepEqual([await contentsOf('one.txt'), await contentsOf('zwei ü.txt')], ['first', 'second']);
    await page.context().close();
  });

  test('files are dropped', async () => {
    const { page, errors } = await openPage(browser, {});
    await page.goto(`${base}/v1/files/main/docs/`);
    await page.evaluate(`{
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(['dropped'], 'a & b?.txt'));
      document.querySelector('form').dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
    }`);
    await page.getByRole('link', { name: 'a & b?.txt' }).waitFor();
    assert.equal(await contentsOf('a & b?.txt'), 'dropped');
    await page.evaluate(`{
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(['dropped'], 'below'));
      document.querySelector('form').dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
    }`);
    await page
      .getByRole('status')
      .getByText('Cannot upload below: "main:/docs/below" is a directory')
      .waitFor();
    assert.ok(
      errors.every((error) => error.includes('409')),
      errors.join('\n'),
    );
    await page.context().close();
  });
});
