// SPDX-License-Identifier: Apache-2.0
// The Node runtime (18 and later): started before anybody needs it, takes one request on descriptor 3, runs it,
// answers, ends. docs/PROTOCOL.md, "Runtime", is what goes over the descriptor; runtimes/README.md is how the texts are
// started.
//
// Theory of operation. The text comes with `node -e`, so that nothing of ours must exist in a template. channel.js,
// encode.js and serve.js are one text. User code shares this process: what the answer needs is captured here, before it
// begins; the key goes into one Hmac object and is in no variable afterwards. libuv marks every inherited descriptor
// close-on-exec at start, so programs that a tool starts do not have the channel.
'use strict';
const fs = require('fs');
const path = require('path');
const url = require('url');
const vm = require('vm');
const Module = require('module');
const { createHmac } = require('crypto');

const CHANNEL = 3;
const reallyExit = process.reallyExit.bind(process);
const { readSync, writeSync } = fs;
const { stringify, parse } = JSON;
const { from: bufferFrom, alloc: bufferAlloc, concat: bufferConcat } = Buffer;

function again(error) {
  if (error.code !== 'EAGAIN') throw error;
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // somebody made the descriptor non-blocking
  return 0;
}

function read(count) {
  const data = bufferAlloc(count);
  for (let got = 0; got < count;) {
    let step;
    try {
      step = readSync(CHANNEL, data, got, count - got, null);
    } catch (error) {
      step = again(error);
      continue;
    }
    if (step === 0) reallyExit(0); // the other side is gone: nobody wants us
    got += step;
  }
  return data;
}

function send(payload) {
  const head = bufferAlloc(4);
  head.writeUInt32LE(payload.length);
  const data = bufferConcat([head, payload]);
  for (let sent = 0; sent < data.length;) {
    try {
      sent += writeSync(CHANNEL, data, sent, data.length - sent);
    } catch (error) {
      again(error);
    }
  }
}

// answer(payload): keyed, once, and then the end.
function answerer(request) {
  const mac = createHmac('sha256', bufferFrom(request.key, 'hex'));
  delete request.key;
  const update = mac.update.bind(mac);
  const digest = mac.digest.bind(mac);
  return (text) => {
    const payload = bufferFrom(text, 'utf8');
    try {
      update(payload);
      send(bufferConcat([bufferFrom(digest('hex') + '\n', 'latin1'), payload]));
    } catch {
      // the tool has closed the channel: no answer, and the service says so
    }
    reallyExit(0);
  };
}
