/**
 * Plants known bugs: Node loads other code than its files have. No file is changed or copied.
 * Modules of the same process are loaded once for each bug, under an address that names it; a process of its own
 * has one bug (`plant-process.ts`).
 */
import { readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import { LAUNCHER_VARIABLE, SOURCE_LAUNCHER } from '../launcher.ts';
import { anchoredSource } from './anchor.ts';
import type { Mutation, Planted } from './planted.ts';

const ROOT = new URL('../../', import.meta.url);
const PACKAGES = new URL('node_modules/', ROOT).href;

/** The variable that gives a process of its own the sources that are other ones, as JSON; read by `plant-process.ts`. */
const SOURCES_VARIABLE = 'PLANTED_SOURCES';

/** Sources without types that have a bug, by the addresses of their files. */
export type Sources = ReadonlyMap<string, string>;

/** @throws Error where the place of a change is not there, or there are several */
export function plantedSources(mutations: readonly Mutation[]): Sources {
  const files = Map.groupBy(mutations, ({ file }) => file);
  return new Map(
    [...files].map(([file, changes]) => {
      const url = new URL(file, ROOT);
      return [url.href, anchoredSource(readFileSync(url, 'utf8'), changes, file)];
    }),
  );
}

/** Of a bug, with the defences that are taken away with it. */
export function mutationsOf(bug: Planted): readonly Mutation[] {
  return [bug, ...(bug.also ?? [])];
}

/** The bugs of this process, by the query that stands behind the addresses of modules that have it. */
const planted = new Map<string, Sources>();

/** Types are taken out of a file once, however many bugs it is loaded with. */
const stripped = new Map<string, string>();

function strippedRead(href: string): string {
  const known = stripped.get(href);
  if (known !== undefined) return known;
  const source = stripTypeScriptTypes(readFileSync(new URL(href), 'utf8'));
  stripped.set(href, source);
  return source;
}

function queryOf(href: string): string {
  return href.slice((href.lastIndexOf('?') + 1 || href.length + 1) - 1);
}

/** What a module with a bug imports has it as well, unless it comes from a package. */
function hooksRegister(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const resolved = nextResolve(specifier, context);
      const query = queryOf(context.parentURL ?? '');
      const isOwn = resolved.url.startsWith(ROOT.href) && !resolved.url.startsWith(PACKAGES);
      if (!planted.has(query) || !isOwn || queryOf(resolved.url) !== '') return resolved;
      return { ...resolved, url: resolved.url + query };
    },
    load(url, context, nextLoad) {
      const query = queryOf(url);
      const sources = planted.get(query);
      if (sources === undefined) return nextLoad(url, context);
      const href = url.slice(0, -query.length);
      const source = sources.get(href) ?? strippedRead(href);
      return { format: 'module', source, shortCircuit: true };
    },
  });
}

/**
 * Plants a bug in this process.
 * @returns a function that loads a module of the code with the bug, named by its path from the root of the repository
 * @throws Error where the place of a change is not there, or there are several
 */
export function plant(bug: Planted): (file: string) => Promise<unknown> {
  if (planted.size === 0) hooksRegister();
  const query = `?planted=${encodeURIComponent(`${bug.layer} ${bug.row}`)}`;
  planted.set(query, plantedSources(mutationsOf(bug)));
  return (file) => import(`${new URL(file, ROOT).href}${query}`);
}

/**
 * Gives a process that is about to start, and those that it starts, other code.
 * @returns the variables to start it with
 * @throws Error where the place of a change is not there, or there are several
 */
export function plantedEnv(mutations: readonly Mutation[]): NodeJS.ProcessEnv {
  const sources = plantedSources(mutations);
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: options = '', ...env } = process.env;
  const hook = new URL('plant-process.ts', import.meta.url).href;
  return {
    ...env,
    NODE_OPTIONS: `${options} --import=${hook}`,
    [SOURCES_VARIABLE]: JSON.stringify([...sources]),
    [LAUNCHER_VARIABLE]: SOURCE_LAUNCHER,
  };
}
