// Node runs TypeScript by itself, but not below node_modules. For a package without compiled JavaScript ("npm pack"
// alone builds none), this strips the types of its modules when they are loaded. NODE_OPTIONS passes it on to processes
// and threads that are started from here.

import { readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import { fileURLToPath } from 'node:url';

const PACKAGE = new URL('..', import.meta.url).href;
const DEPENDENCIES = new URL('../node_modules/', import.meta.url).href;
const IMPORT = `--import ${import.meta.url}`;

registerHooks({
  load(url, context, nextLoad) {
    const isOurs = url.startsWith(PACKAGE) && !url.startsWith(DEPENDENCIES) && url.endsWith('.ts');
    if (!isOurs) return nextLoad(url, context);
    const source = withoutWarning(() => stripTypeScriptTypes(readFileSync(fileURLToPath(url), 'utf8')));
    return { format: 'module', shortCircuit: true, source };
  },
});

const options = process.env.NODE_OPTIONS ?? '';
if (!options.includes(IMPORT)) process.env.NODE_OPTIONS = `${options} ${IMPORT}`.trim();

/**
 * Suppresses Node's warning that the function is experimental.
 * @template Value
 * @param {() => Value} work
 * @returns {Value}
 */
function withoutWarning(work) {
  const { emitWarning } = process;
  process.emitWarning = () => undefined;
  try {
    return work();
  } finally {
    process.emitWarning = emitWarning;
  }
}
