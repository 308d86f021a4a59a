// Gated short convolution over the tokens of a sequence, with what it must remember of those before.
#pragma once

namespace emel {
namespace {

// One token's row of in: three parts of n values, B, C and x. B * x is convolved, C multiplied with what comes out.
struct ConvolutionRow {
  const float* b;
  const float* c;
  const float* x;
  EMEL_INLINE_MEMBER ConvolutionRow(const ConvolutionArgs& a, size_t token)
      : b(a.in + token * 3 * a.n), c(b + a.n), x(c + a.n) {}
};

// Values [at, at + 16) of all tokens of the batch: their results into out, their products into the states, where each
// takes the place of the one n_kept positions before it. The taps are multiplied in ascending order, the oldest product
// first.
EMEL_INLINE void convolve_lanes(const ConvolutionArgs& a, size_t at) {
  const int left = lanes_left(at, a.n);
  if (left == 0) return;
  const size_t n_past = a.taps - 1;
  F32 taps[kMostTaps];
  F32 window[kMostTaps];  // products, the newest last
  for (size_t j = 0; j < a.taps; ++j) taps[j] = load_left(a.taps_by_channel + j * a.n + at, left);
  const F32 bias = a.bias == nullptr ? f_zero() : load_left(a.bias + at, left);
  float* state = nullptr;
  size_t row = 0;  // of the token in it
  for (size_t token = 0; token < a.n_tokens; ++token) {
    if (token == 0 || a.sequences[token] != a.sequences[token - 1]) {
      const size_t slot = static_cast<size_t>(a.slots[a.sequences[token]]);
      state = a.state + slot * a.state_stride + at;
      const size_t position = static_cast<size_t>(a.positions[token]);
      row = position % a.n_kept;
      for (size_t j = 0; j < n_past; ++j) {
        const size_t back = n_past - j;
        const size_t past = row >= back ? row - back : row + a.n_kept - back;
        window[j] = position < back ? f_zero() : load_left(state + past * a.n, left);
      }
    }
    const ConvolutionRow in(a, token);
    window[n_past] = f_mul(load_left(in.b + at, left), load_left(in.x + at, left));
    store_left(state + row * a.n, window[n_past], left);
    row = row + 1 == a.n_kept ? 0 : row + 1;
    F32 sum = bias;
    for (size_t j = 0; j < a.taps; ++j) sum = f_fma(window[j], taps[j], sum);
    store_left(a.out + token * a.n + at, f_mul(load_left(in.c + at, left), sum), left);
    for (size_t j = 0; j < n_past; ++j) window[j] = window[j + 1];
  }
}

// Lanes share the channels, never the tokens, so that each reads and writes its own part of the states.
void convolution(const ConvolutionArgs& a) {
  for (size_t block = a.block_begin; block < a.block_end; ++block) {
    convolve_lanes(a, block * 16);
  }
}

}  // namespace
}  // namespace emel
