import { existsSync } from 'node:fs';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';

/** As Debian installs it; `CHROMIUM` names another one. */
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  // Pages of one context share a process, and none is kept ready.
  '--renderer-process-limit=1',
  '--disable-features=SpareRendererForSitePerProcess',
];

/** Why no browser can be started here; false if one can. */
export const NO_BROWSER: string | false = existsSync(CHROMIUM)
  ? false
  : `there is no ${CHROMIUM}: apt-get install --no-install-recommends chromium, or name another in CHROMIUM`;

export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

export interface OpenPage {
  readonly page: Page;
  /** Every error of the page that the browser reports. */
  readonly errors: string[];
}

/**
 * Unless `options` say otherwise, what moves on a page moves only when a server sends a new state: without a graphics
 * card, each picture costs the processor more than the servers do.
 */
export function newContext(browser: Browser, options: BrowserContextOptions): Promise<BrowserContext> {
  return browser.newContext({ reducedMotion: 'reduce', ...options });
}

/** Opens a page in a new context. */
export async function openPage(browser: Browser, options: BrowserContextOptions): Promise<OpenPage> {
  return openPageIn(await newContext(browser, options));
}

export async function openPageIn(context: BrowserContext): Promise<OpenPage> {
  const page = await context.newPage();
  const errors: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(`${message.text()} (${message.location().url})`);
  });
  page.on('pageerror', (error) => errors.push(error.message));
  return { page, errors };
}
