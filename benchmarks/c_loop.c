/* The ADVI step of benchmarks/step.py written by hand: the practical limit of one core.
 *
 * Network 2-5-5-2 with tanh and two classes on 700 points, N(0, 1) prior, mean-field guide with
 * softplus scales, one draw a step, analytic entropy, Adam with a one-cycle schedule. Every
 * array over points has the points on its last axis, so that each loop over them is a vector
 * loop. Weights lie in one flat vector in the order of the model: weight_1 (2, 5), bias_1,
 * weight_2 (5, 5), bias_2, weight_3 (5, 2), bias_3.
 */
#include <math.h>
#include <stdint.h>

enum { POINTS = 700, FEATURES = 2, HIDDEN = 5, CLASSES = 2 };
enum {
    WEIGHT_1 = 0,
    BIAS_1 = WEIGHT_1 + FEATURES * HIDDEN,
    WEIGHT_2 = BIAS_1 + HIDDEN,
    BIAS_2 = WEIGHT_2 + HIDDEN * HIDDEN,
    WEIGHT_3 = BIAS_2 + HIDDEN,
    BIAS_3 = WEIGHT_3 + HIDDEN * CLASSES,
    SIZE = BIAS_3 + CLASSES
};
enum { LANES = 32 }; /* generators side by side; two normals of each make at least SIZE */

#define VECTOR _Pragma("omp simd")
#define TWO_PI 6.283185307179586f

typedef struct { uint32_t word[4][LANES]; } Random;
typedef struct { float loc[SIZE], rho[SIZE]; } Guide;

/* Activations of one forward pass. Static: one fit runs at a time, and it stays in the cache. */
static float hidden_1[HIDDEN][POINTS], hidden_2[HIDDEN][POINTS];
static float delta_1[HIDDEN][POINTS], delta_2[HIDDEN][POINTS], delta_3[CLASSES][POINTS];

/* Rational approximation with an error of a few units in the last place (Eigen's, which XLA
 * uses too); beyond the bound tanh is 1 in single precision. */
static inline float fast_tanh(float x)
{
    const float bound = 7.90531110763549805f;
    x = x > bound ? bound : x;
    x = x < -bound ? -bound : x;
    float s = x * x;
    float p = -2.76076847742355e-16f;
    p = p * s + 2.00018790482477e-13f;
    p = p * s + -8.60467152213735e-11f;
    p = p * s + 5.12229709037114e-08f;
    p = p * s + 1.48572235717979e-05f;
    p = p * s + 6.37261928875436e-04f;
    p = p * s + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * s + 1.18534705686654e-04f;
    q = q * s + 2.26843463243900e-03f;
    q = q * s + 4.89352518554385e-03f;
    return x * p / q;
}

/* One unit before its activation at point i; `weights` is (inputs, outputs), this one's column. */
static inline float unit(int inputs, int outputs, const float *weights, float bias,
                         const float (*in)[POINTS], int i)
{
    float sum = bias;
    for (int k = 0; k < inputs; k++)
        sum += weights[k * outputs] * in[k][i];
    return sum;
}

static inline void forward_hidden(int inputs, const float *weights, const float *bias,
                                  const float (*in)[POINTS], float (*out)[POINTS])
{
    for (int j = 0; j < HIDDEN; j++)
        VECTOR for (int i = 0; i < POINTS; i++)
            out[j][i] = fast_tanh(unit(inputs, HIDDEN, weights + j, bias[j], in, i));
}

/* Log-likelihood in nats, and its negative's gradient by the outputs. `sign` is 1 for class 1
 * and -1 for class 0: with two classes the softmax depends on the outputs' difference only. */
static float likelihood(const float *z, const float *sign)
{
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < POINTS; i++) {
        float no = unit(HIDDEN, CLASSES, z + WEIGHT_3, z[BIAS_3], hidden_2, i);
        float yes = unit(HIDDEN, CLASSES, z + WEIGHT_3 + 1, z[BIAS_3 + 1], hidden_2, i);
        float margin = sign[i] * (yes - no);
        float small = expf(-fabsf(margin)); /* at most 1: cannot overflow */
        total += (margin < 0.0f ? margin : 0.0f) - logf(1.0f + small);
        float wrong = (margin < 0.0f ? 1.0f : small) / (1.0f + small);
        delta_3[0][i] = sign[i] * wrong;
        delta_3[1][i] = -sign[i] * wrong;
    }
    return total;
}

/* Gradient of one layer's weights and biases from the gradient by its outputs. */
static inline void gradient_layer(int inputs, int outputs, const float (*in)[POINTS],
                                  const float (*delta)[POINTS], float *weights, float *bias)
{
    for (int j = 0; j < outputs; j++) {
        float sum[HIDDEN] = {0.0f}, sum_bias = 0.0f;
#pragma omp simd reduction(+ : sum, sum_bias)
        for (int i = 0; i < POINTS; i++) {
            for (int k = 0; k < inputs; k++)
                sum[k] += in[k][i] * delta[j][i];
            sum_bias += delta[j][i];
        }
        for (int k = 0; k < inputs; k++)
            weights[k * outputs + j] = sum[k];
        bias[j] = sum_bias;
    }
}

/* Gradient by a hidden layer's units before tanh, from the gradient by the next layer's. */
static inline void backward_hidden(int outputs, const float *weights,
                                   const float (*delta)[POINTS],
                                   const float (*activation)[POINTS], float (*out)[POINTS])
{
    for (int k = 0; k < HIDDEN; k++)
        VECTOR for (int i = 0; i < POINTS; i++) {
            float sum = 0.0f;
            for (int j = 0; j < outputs; j++)
                sum += weights[k * outputs + j] * delta[j][i];
            out[k][i] = sum * (1.0f - activation[k][i] * activation[k][i]);
        }
}

/* Log-likelihood of weights z, and its negative's gradient. */
static float network(const float *z, const float (*x)[POINTS], const float *sign,
                     float *gradient)
{
    forward_hidden(FEATURES, z + WEIGHT_1, z + BIAS_1, x, hidden_1);
    forward_hidden(HIDDEN, z + WEIGHT_2, z + BIAS_2, (const float(*)[POINTS])hidden_1, hidden_2);
    float total = likelihood(z, sign);
    gradient_layer(HIDDEN, CLASSES, hidden_2, delta_3, gradient + WEIGHT_3, gradient + BIAS_3);
    backward_hidden(CLASSES, z + WEIGHT_3, delta_3, hidden_2, delta_2);
    gradient_layer(HIDDEN, HIDDEN, hidden_1, delta_2, gradient + WEIGHT_2, gradient + BIAS_2);
    backward_hidden(HIDDEN, z + WEIGHT_2, delta_2, hidden_1, delta_1);
    gradient_layer(FEATURES, HIDDEN, x, delta_1, gradient + WEIGHT_1, gradient + BIAS_1);
    return total;
}

/* Negative ELBO in nats and its gradient, at given noise. x is (2, 700). */
float loss_and_gradient(const float *x, const float *sign, const Guide *guide,
                        const float *noise, Guide *gradient)
{
    float z[SIZE], scale[SIZE], by_z[SIZE], prior_and_entropy = 0.0f;
    VECTOR for (int i = 0; i < SIZE; i++) {
        scale[i] = fmaxf(guide->rho[i], 0.0f) + logf(1.0f + expf(-fabsf(guide->rho[i])));
        z[i] = guide->loc[i] + scale[i] * noise[i];
    }
    float fit = network(z, (const float(*)[POINTS])x, sign, by_z);
#pragma omp simd reduction(+ : prior_and_entropy)
    for (int i = 0; i < SIZE; i++) {
        float slope = 1.0f / (1.0f + expf(-guide->rho[i])); /* of softplus */
        prior_and_entropy += 0.5f - 0.5f * z[i] * z[i] + logf(scale[i]);
        gradient->loc[i] = by_z[i] + z[i];
        gradient->rho[i] = (gradient->loc[i] * noise[i] - 1.0f / scale[i]) * slope;
    }
    return -(fit + prior_and_entropy);
}

/* A 32-bit mixer that spreads a counter over all bits (Steele and others 2014). */
static uint32_t mixed(uint32_t n)
{
    n = (n ^ (n >> 16)) * 0x85ebca6bu;
    n = (n ^ (n >> 13)) * 0xc2b2ae35u;
    return n ^ (n >> 16);
}

static Random seeded(uint32_t seed)
{
    Random random;
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < LANES; i++)
            random.word[w][i] = mixed(seed + 0x9e3779b9u * (uint32_t)(w * LANES + i + 1));
    return random;
}

/* xoshiro128+ (Blackman and Vigna 2018), one generator a lane. */
static inline void next_words(Random *random, uint32_t *out)
{
    VECTOR for (int i = 0; i < LANES; i++) {
        uint32_t a = random->word[0][i], b = random->word[1][i];
        uint32_t c = random->word[2][i] ^ a, d = random->word[3][i] ^ b;
        out[i] = a + random->word[3][i];
        random->word[0][i] = a ^ d;
        random->word[1][i] = b ^ c;
        random->word[2][i] = c ^ (b << 9);
        random->word[3][i] = (d << 11) | (d >> 21);
    }
}

/* Box-Muller; the first SIZE of 2 * LANES standard normals are used. */
static void draw_normals(Random *random, float *out)
{
    uint32_t first[LANES], second[LANES];
    next_words(random, first);
    next_words(random, second);
    VECTOR for (int i = 0; i < LANES; i++) {
        /* 24 bits, the half keeping the logarithm away from 0 */
        float radius = sqrtf(-2.0f * logf(((int32_t)(first[i] >> 8) + 0.5f) * 0x1p-24f));
        float angle = TWO_PI * ((int32_t)(second[i] >> 8) * 0x1p-24f);
        out[i] = radius * cosf(angle);
        out[i + LANES] = radius * cosf(angle - 0.25f * TWO_PI); /* sinf beside cosf is no vector call */
    }
}

/* Up in a straight line from a 25th over the first tenth, then down to 0 on a cosine. */
static float one_cycle(float rate, int step, int steps)
{
    int warm_up = steps / 10;
    if (step < warm_up)
        return rate * (0.04f + 0.96f * step / warm_up);
    return rate * 0.5f * (1.0f + cosf(0.5f * TWO_PI * (step - warm_up) / (steps - warm_up)));
}

/* Adam (Kingma and Ba 2015) on the means and unconstrained scales as one vector. */
static void adam(float *values, const float *gradient, float *mean, float *square, float rate,
                 float correct_mean, float correct_square)
{
    VECTOR for (int i = 0; i < 2 * SIZE; i++) {
        mean[i] = 0.9f * mean[i] + 0.1f * gradient[i];
        square[i] = 0.999f * square[i] + 0.001f * gradient[i] * gradient[i];
        values[i] -= rate * (mean[i] * correct_mean)
                     / (sqrtf(square[i] * correct_square) + 1e-8f);
    }
}

/* A whole fit in place; returns the mean ELBO, so that nothing is optimised away. */
float fit(int steps, float rate, uint32_t seed, const float *x, const float *sign, Guide *guide)
{
    Guide gradient, mean = {{0.0f}, {0.0f}}, square = {{0.0f}, {0.0f}};
    Random random = seeded(seed);
    float noise[2 * LANES];
    double left_mean = 1.0, left_square = 1.0, total = 0.0;
    for (int step = 0; step < steps; step++) {
        draw_normals(&random, noise);
        total -= loss_and_gradient(x, sign, guide, noise, &gradient);
        left_mean *= 0.9;
        left_square *= 0.999;
        adam((float *)guide, (float *)&gradient, (float *)&mean, (float *)&square,
             one_cycle(rate, step, steps), (float)(1.0 / (1.0 - left_mean)),
             (float)(1.0 / (1.0 - left_square)));
    }
    return (float)(total / steps);
}

/* Gradient ascent on the log-density of the weights themselves, in place: what a gradient costs
 * samplers. Returns the mean log-density without its constant, in nats. */
float ascend(int steps, float rate, const float *x, const float *sign, float *z)
{
    double total = 0.0;
    for (int step = 0; step < steps; step++) {
        float by_z[SIZE], prior = 0.0f;
        total += network(z, (const float(*)[POINTS])x, sign, by_z);
#pragma omp simd reduction(+ : prior)
        for (int i = 0; i < SIZE; i++) {
            prior -= 0.5f * z[i] * z[i];
            z[i] -= rate * (by_z[i] + z[i]);
        }
        total += prior;
    }
    return (float)(total / steps);
}
