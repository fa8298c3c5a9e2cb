// SPDX-License-Identifier: Apache-2.0
// JavaScript values to JSON text, within a budget of bytes; docs/TOOLS.md, "Values", has the table, and the tests hold
// each row against it.
const DEPTH = 60; // the service reads 64 levels; the answer itself has some
const MEMBERS = 1000000; // values and keys; the service reads some more
const HUGE = 1n << 1020n; // a double's range: past it the service's reader refuses a number

class ResultTooLarge extends Error {
  get name() { return 'ResultTooLarge'; }
}

function quote(text) {
  // half surrogates become U+FFFD
  return stringify(/[\ud800-\udfff]/.test(text) ? bufferFrom(text, 'utf8').toString() : text);
}

function kindOf(value) {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

function encoder(limit, notes) {
  let total = 0;
  let count = 0;
  const trail = new Set();

  const note = (text) => {
    if (!notes.includes(text) && notes.length < 16) notes.push(text);
  };
  const spend = (size) => {
    total += size;
    if (total > limit) throw new ResultTooLarge(`the result is larger than the ${limit} bytes that are allowed`);
  };
  const put = (text) => {
    spend(text.length + 1);
    count += 1;
    if (count > MEMBERS) throw new ResultTooLarge(`the result has more than the ${MEMBERS} values that are allowed`);
    return text;
  };
  const string = (text) => {
    spend(text.length); // before it is copied
    return put(quote(text));
  };
  const list = (items, depth) => `[${items.map((item) => encode(item, depth) ?? put('null')).join(',')}]`;
  const members = (pairs, depth) => {
    const found = new Map(); // two keys that become alike: the later one stays
    for (const [key, item] of pairs) found.set(String(key).replaceAll('\0', '\ufffd'), item);
    const texts = [];
    for (const [key, item] of found) {
      const text = encode(item, depth);
      if (text !== undefined) texts.push(`${string(key)}:${text}`);
    }
    return `{${texts.join(',')}}`;
  };

  function object(value, depth) {
    if (typeof value.toJSON === 'function' && !Buffer.isBuffer(value)) {
      if (value instanceof Date && Number.isNaN(value.getTime())) {
        note('an invalid Date became null');
        return put('null');
      }
      return encode(value.toJSON(), depth) ?? put('null');
    }
    if (Array.isArray(value)) return list(Array.from(value), depth);
    if (value instanceof Map) {
      if ([...value.keys()].some((key) => typeof key === 'object' && key !== null)) {
        note('keys that are objects became their String()');
      }
      return members(value.entries(), depth);
    }
    if (value instanceof Set) return list([...value], depth);
    if (value instanceof ArrayBuffer || value instanceof Uint8Array || value instanceof DataView) {
      const bytes = value instanceof ArrayBuffer ? bufferFrom(value)
        : bufferFrom(value.buffer, value.byteOffset, value.byteLength);
      spend(bytes.length);
      return put(`{"base64":"${bytes.toString('base64')}"}`);
    }
    if (ArrayBuffer.isView(value)) return list(Array.from(value), depth);
    if (value instanceof Error) return members([['name', value.name], ['message', value.message]], depth);
    if (value instanceof RegExp) return string(String(value));
    if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) {
      return encode(value.valueOf(), depth);
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) {
      note(`a value of type ${value.constructor.name} became its String()`);
      return string(String(value));
    }
    return members(Object.entries(value), depth);
  }

  function encode(value, depth = 0) {
    switch (typeof value) {
      case 'string':
        return string(value);
      case 'number':
        if (!Number.isFinite(value)) note(`${value} became null: JSON has no such number`);
        return put(stringify(value));
      case 'boolean':
        return put(String(value));
      case 'bigint':
        if (value < HUGE && value > -HUGE) return put(String(value));
        note('an integer past 1e307 became a string');
        return put(`"${value}"`);
      case 'undefined':
        return undefined;
      case 'function':
      case 'symbol':
        note(`a ${typeof value} was left out`);
        return undefined;
      default:
    }
    if (value === null) return put('null');
    if (depth >= DEPTH) throw new RangeError(`the result is nested deeper than ${DEPTH} levels`);
    if (trail.has(value)) throw new TypeError('Circular reference detected');
    trail.add(value);
    spend(2);
    const text = object(value, depth + 1);
    trail.delete(value);
    return text;
  }
  return (value) => encode(value) ?? 'null';
}
