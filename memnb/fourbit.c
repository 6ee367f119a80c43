/* One pass of a Llama over a few tokens on a CPU, its weights in blocks of 4 or 8 bits, all else in float32.

   The optional fast way of memnb.fourbit, which compiles this file at first use. A block is 32 columns of
   as many rows as a vector has numbers; in each row a weight is q d + m, with d and m of its own. A pass over one token is bound by the reading of weights, so
   they are read as they are stored, and a product takes a block apart in registers, for up to 8 tokens at a time:
   sum of (q d + m) x = d sum(q x) + m sum(x), and sum(x) is the same for all rows. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* A vector is as wide as a register of the processor that this is compiled for, as in gpt.c. The sums of products with
   weights are in the same order at every width; those of attention and of norms are not, and differ in the last bits. */
#ifndef WIDTH
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16                                     /* SSE, NEON */
#endif
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
enum { ROWS = WIDTH/4, COLS = 32, TILE = 8, D = 64 };  /* D: width of a head of attention */
typedef float vf __attribute__((vector_size(WIDTH), aligned(4)));
typedef int32_t vi __attribute__((vector_size(WIDTH), aligned(4)));
typedef struct { long rows, cols, bits; const vi *at; } matrix; /* blocks of ROWS rows side by side, then the next */
#define BLOCK(bits) (2 + COLS*(bits)/32)             /* vectors of a block: d, m, and all q, 32/bits columns in each */

/* Blocks of float32 weights; 0 where these are not, to the bit, what blocks can say. */
int pack(const float *w, const matrix *to) {
    int good = 1, bits = to->bits, each = 32/bits;
    #pragma omp parallel for reduction(&:good)
    for (long g = 0; g < to->rows/ROWS; g++) for (long b = 0; good && b < to->cols/COLS; b++) {
        vi *out = (vi *)to->at + (g*(to->cols/COLS) + b)*BLOCK(bits);
        for (int r = 0; r < ROWS; r++) {
            const float *x = w + (g*ROWS + r)*to->cols + b*COLS;
            float low = x[0], high = x[0];
            for (int k = 1; k < COLS; k++) low = x[k] < low ? x[k] : low, high = x[k] > high ? x[k] : high;
            float d = bits == 4 ? (high - low)/15 : (high > -low ? high : -low)/127, m = bits == 4 ? low + 8*d : 0;
            ((float *)out)[r] = d; ((float *)out)[ROWS + r] = m;
            for (int j = 0; j < COLS/each; j++) {
                uint32_t all = 0;
                for (int i = 0; i < each; i++) {
                    int q = d > 0 ? (int)rintf((x[each*j + i] - m)/d) : 0;
                    good &= d*q + m == x[each*j + i];
                    all |= ((uint32_t)q & ((1u << bits) - 1)) << bits*i;
                }
                ((uint32_t *)(out + 2 + j))[r] = all;
            }
        }
    }
    return good;
}

/* ---- products: y of ROWS rows for n tokens; x lies column by column, n numbers each ---- */

INLINE vf column(const int bits, vi q, int i) {      /* the numbers in bits [bits i, bits (i + 1)), with their sign */
#if WIDTH == 64 && defined(__AVX512F__) && !defined(__clang__)   /* one look into a table of 16 instead of a shift and a conversion */
    if (bits == 4) return __builtin_shuffle((vf){0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1}, q >> 4*i);
#endif
    return __builtin_convertvector(q << (32 - bits - bits*i) >> (32 - bits), vf);
}

INLINE void by(const int bits, const int n, long K, const vi *w, const float *x, const float *sum, vf *y) {
    enum { C = 4 };       /* sums side by side, so that none waits for the one before: two begin in each clock, and end
                             four later; no more than 10 in all, beside a column and a number of x in 16 registers */
    const int c = n == 1 ? C : n <= 5 ? 2 : 1, each = 32/bits;
    vf t[TILE] = {0};
    for (long b = 0; b < K/COLS; b++, w += BLOCK(bits), sum += n) {
        vf s[C*TILE] = {0};
        for (int j = 0; j < COLS/each; j++) UNROLL for (int i = 0; i < each; i++, x += n) {
            vf q = column(bits, w[2 + j], i);
            UNROLL for (int r = 0; r < n; r++) s[i%c*n + r] += q*x[r];
        }
        UNROLL for (int r = 0; r < n; r++) {
            UNROLL for (int k = 1; k < c; k++) s[r] += s[k*n + r];
            t[r] += (vf)w[0]*s[r] + (vf)w[1]*sum[r];
        }
    }
    UNROLL for (int r = 0; r < n; r++) y[r] = t[r];
}

#define FOR(B, N) case 16*B + N: by(B, N, K, w, x, sum, y); break;
#define FOR_ALL(B) FOR(B, 1) FOR(B, 2) FOR(B, 3) FOR(B, 4) FOR(B, 5) FOR(B, 6) FOR(B, 7) FOR(B, 8)
static void some_rows(int bits, int n, long K, const vi *w, const float *x, const float *sum, vf *y) {
    switch (16*bits + n) { FOR_ALL(4) FOR_ALL(8) }
}

/* ---- tokens in tiles of up to 8: column k of token i lies at spot(...)[k*width(n, i)] ---- */

INLINE int width(int n, int i) { int left = n - i/TILE*TILE; return left < TILE ? left : TILE; }
INLINE long spot(long K, int n, int i) { return i/TILE*TILE*K + i%TILE; }

/* sum(x) of each block, of columns of all tiles */
static void sums(long K, int n, const float *x, float *sum) {
    for (int i = 0; i < n; i += TILE) for (long b = 0, e = width(n, i); b < K/COLS; b++) {
        const float *from = x + i*K + b*COLS*e;
        float *to = sum + i*(K/COLS) + b*e;
        for (int r = 0; r < e; r++) to[r] = 0;
        for (int k = 0; k < COLS; k++) for (int r = 0; r < e; r++) to[r] += from[k*e + r];
    }
}

/* ROWS rows of W x from row ROWS g on, for the tile that begins with token i */
INLINE void rows_of(const matrix *w, long g, int n, int i, const float *x, const float *sum, vf *y) {
    long K = w->cols;
    some_rows(w->bits, width(n, i), K, w->at + g*(K/COLS)*BLOCK(w->bits), x + i*K, sum + i*(K/COLS), y);
}

/* y (n x rows) = [y +] W x, shared out to the threads */
static void product(const matrix *w, int n, const float *x, const float *sum, float *y, int add) {
    #pragma omp for
    for (long g = 0; g < w->rows/ROWS; g++) for (int i = 0; i < n; i += TILE) {
        vf t[TILE];
        rows_of(w, g, n, i, x, sum, t);
        for (int r = 0; r < width(n, i); r++) {
            float *to = y + (i + r)*w->rows + g*ROWS;
            for (int k = 0; k < ROWS; k++) to[k] = add ? to[k] + t[r][k] : t[r][k];
        }
    }
}

/* W x for a test: x (n x cols), y (n x rows) */
int multiply(const matrix *w, int n, const float *x, float *y, int threads) {
    long K = w->cols;
    float *p = malloc(n*(K + K/COLS)*4), *sum = p + n*K;
    if (!p) return 0;
    for (int i = 0; i < n; i++) for (long k = 0; k < K; k++) p[spot(K, n, i) + k*width(n, i)] = x[i*K + k];
    sums(K, n, p, sum);
    #pragma omp parallel num_threads(threads)
    product(w, n, p, sum, y, 0);
    free(p);
    return 1;
}

/* ---- the model ---- */

typedef struct { const float *norm1, *norm2; matrix qkv, out, gate, up, down; } layer;
typedef struct {                     /* width d, H heads that share K heads of keys, V tokens */
    long L, d, H, K, F, V; double eps;
    const float *embed, *norm, *cos, *sin; const layer *at; matrix head;
} model;
typedef struct { float *k, *v; const float *pre_k, *pre_v; } keys; /* rows x K x size x D; K x before x D for all rows */
typedef struct { long id, place, row, first, at; } token;        /* it sees columns first to at of its row's keys */

static void norm(const float *x, const float *w, long d, double eps, float *out, long step) {
    float sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long k = 0; k < d; k++) sum += x[k]*x[k];
    float by = 1/sqrtf(sum/d + (float)eps);
    for (long k = 0; k < d; k++) out[k*step] = w[k]*(x[k]*by);
}

/* A head turned by its place */
static void turn(float *x, const float *cos, const float *sin) {
    for (long j = 0, h = D/2; j < h; j++) {
        float a = x[j], b = x[j + h];
        x[j] = a*cos[j] - b*sin[j];
        x[j + h] = b*cos[j + h] + a*sin[j + h];
    }
}

/* exp, to float precision, in a form of which a loop makes vectors */
INLINE float fexp(float x) {
    float z = x*1.44269504f;
    z = z < -126 ? -126 : z > 126 ? 126 : z;
    int32_t n = (int32_t)(z + (z < 0 ? -.5f : .5f));
    float f = z - n, p = f*1.54035304e-4f + 1.33335581e-3f;
    p = p*f + 9.61812911e-3f;
    p = p*f + 5.55041087e-2f;
    p = p*f + 2.40226507e-1f;
    p = p*f + 6.93147181e-1f;
    union { float f; int32_t i; } out = {p*f + 1};
    out.i += n << 23;
    return out.f;
}

#if WIDTH == 64
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif WIDTH == 32
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif
#ifdef __clang__
#define OF_TWO(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define OF_TWO(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif
/* Lane i: the sum of all lanes of a[i] */
INLINE vf totals(vf *a) {
    for (int k = ROWS/2; k; k /= 2) for (int i = 0; i < k; i++)
        a[i] = OF_TWO(a[2*i], a[2*i + 1], EVEN) + OF_TWO(a[2*i], a[2*i + 1], ODD);
    return a[0];
}

/* Attention of one head to two stretches of keys; s has room for all scores and 16 more */
static void attend(const float *q, const float *k[2], const float *v[2], const long size[2], float *s, float *out,
                   long step) {
    long n = size[0] + size[1], c = 0;
    float most = -INFINITY, sum = 0;
    enum { EACH = D/ROWS };                          /* vectors of a key or a value */
    const vf *of = (const vf *)q;
    vf to[EACH] = {0};
    for (int p = 0; p < 2; p++) {
        for (long i = 0; i < size[p]; i += ROWS) {
            vf a[ROWS] = {0};
            for (int j = 0; j < ROWS && i + j < size[p]; j++) {
                const vf *x = (const vf *)(k[p] + (i + j)*D);
                UNROLL for (int h = 0; h < EACH; h++) a[j] += of[h]*x[h];
            }
            *(vf *)(s + c + i) = totals(a)*.125f;            /* 1/sqrt(D) */
        }
        c += size[p];
    }
    #pragma omp simd reduction(max:most)
    for (long i = 0; i < n; i++) most = s[i] > most ? s[i] : most;
    #pragma omp simd reduction(+:sum)
    for (long i = 0; i < n; i++) sum += s[i] = fexp(s[i] - most);
    c = 0;
    for (int p = 0; p < 2; p++) for (long i = 0; i < size[p]; i++, c++) {
        const vf *x = (const vf *)(v[p] + i*D);
        UNROLL for (int j = 0; j < EACH; j++) to[j] += s[c]*x[j];
    }
    for (int j = 0; j < D; j++) out[j*step] = to[j/ROWS][j%ROWS]/sum;
}

/* Scores (n x V) behind each of n tokens, whose keys and values are put into the cache; 0 where memory does not suffice */
int forward(const model *m, int n, const token *ts, const keys *cache, long size, long before, float *logits, int threads) {
    long d = m->d, H = m->H, K = m->K, F = m->F, R = (H + 2*K)*D, room = before + size + 16;
    long W = F > H*D ? F : H*D, Y = R > d ? R : d;
    if (W < d) W = d;
    float *x = malloc((n*(d + Y + W + W/COLS) + threads*room)*4);
    if (!x) return 0;
    float *y = x + n*d, *p = y + n*Y, *sum = p + n*W, *scores = sum + n*W/COLS;
    for (int i = 0; i < n; i++) memcpy(x + i*d, m->embed + ts[i].id*d, d*4);
    #pragma omp parallel num_threads(threads)
    {
        #ifdef _OPENMP
        float *own = scores + omp_get_thread_num()*room;
        #else
        float *own = scores;
        #endif
        for (long l = 0; l <= m->L; l++) {
            const layer *at = m->at + l;
            #pragma omp for
            for (int i = 0; i < n; i++)
                norm(x + i*d, l < m->L ? at->norm1 : m->norm, d, m->eps, p + spot(d, n, i), width(n, i));
            #pragma omp single
            sums(d, n, p, sum);
            if (l == m->L) break;
            const keys *c = cache + l;
            product(&at->qkv, n, p, sum, y, 0);
            #pragma omp for
            for (long u = 0; u < n*(H + 2*K); u++) {        /* turn queries and keys, keep keys and values */
                const token *t = ts + u/(H + 2*K);
                long h = u%(H + 2*K);
                float *of = y + u*D;
                if (h < H + K) turn(of, m->cos + t->place*D, m->sin + t->place*D);
                if (h >= H) memcpy((h < H + K ? c->k : c->v) + ((t->row*K + (h - H)%K)*size + t->at)*D, of, D*4);
            }
            #pragma omp for
            for (long u = 0; u < n*H; u++) {
                const token *t = ts + u%n;
                long i = u%n, h = u/n, kh = h/(H/K), from = (t->row*K + kh)*size + t->first;
                const float *ks[] = {c->pre_k + kh*before*D, c->k + from*D}, *vs[] = {c->pre_v + kh*before*D, c->v + from*D};
                long many[] = {before, t->at + 1 - t->first};
                const float *q = y + i*R + h*D;
                float *out = p + spot(H*D, n, i) + h*D*width(n, i);
                attend(q, ks, vs, many, own, out, width(n, i));
            }
            #pragma omp single
            sums(H*D, n, p, sum);
            product(&at->out, n, p, sum, x, 1);
            #pragma omp for
            for (int i = 0; i < n; i++) norm(x + i*d, at->norm2, d, m->eps, y + spot(d, n, i), width(n, i));
            #pragma omp single
            sums(d, n, y, sum);
            #pragma omp for
            for (long g = 0; g < F/ROWS; g++) for (int i = 0; i < n; i += TILE) {
                vf a[TILE], b[TILE];
                long e = width(n, i);
                rows_of(&at->gate, g, n, i, y, sum, a);
                rows_of(&at->up, g, n, i, y, sum, b);
                for (int r = 0; r < e; r++) {
                    float *u = (float *)(a + r), *v = (float *)(b + r);
                    #pragma omp simd
                    for (int k = 0; k < ROWS; k++) u[k] = u[k]/(1 + fexp(-u[k]))*v[k];
                    for (int k = 0; k < ROWS; k++) p[spot(F, n, i + r) + (g*ROWS + k)*e] = u[k];
                }
            }
            #pragma omp single
            sums(F, n, p, sum);
            product(&at->down, n, p, sum, x, 1);
        }
        product(&m->head, n, p, sum, logits, 0);
    }
    free(x);
    return 1;
}
