/* The activations and their slopes, in the precision of whoever includes this: REAL, EXP, ERFC, and INLINE for what a function is. x: the
 * input. NaN stays NaN; slopes at NaN are those of PyTorch. */
INLINE REAL clamp(REAL x, REAL low, REAL high)
{
	return x < low ? low : x > high ? high : x;
}

INLINE REAL sigmoid(REAL x)
{
	return 1 / (1 + EXP(-x));
}

/* The normal distribution. */
INLINE REAL normal_below(REAL x)
{
	return (REAL)0.5 * ERFC(-x * (REAL)0.70710678118654752);
}

INLINE REAL value(enum gn_activation kind, REAL x)
{
	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return clamp(x, 0, 6);
	case GN_ACTIVATION_SILU:
		return x * sigmoid(x);
	case GN_ACTIVATION_HARD_SWISH:
		return x * clamp(x + 3, 0, 6) / 6;
	case GN_ACTIVATION_HARD_SIGMOID:
		return clamp(x + 3, 0, 6) / 6;
	case GN_ACTIVATION_SIGMOID:
		return sigmoid(x);
	case GN_ACTIVATION_GELU:
		return x * normal_below(x);
	}
	return x;
}

INLINE REAL slope(enum gn_activation kind, REAL x)
{
	REAL s;

	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return x <= 0 || x >= 6 ? 0 : 1;
	case GN_ACTIVATION_SILU:
		s = sigmoid(x);
		return s * (1 + x * (1 - s));
	case GN_ACTIVATION_HARD_SWISH:
		return x <= -3 ? 0 : x < 3 ? x / 3 + (REAL)0.5 : 1;
	case GN_ACTIVATION_HARD_SIGMOID:
		return x > -3 && x < 3 ? (REAL)(1.0 / 6) : 0;
	case GN_ACTIVATION_SIGMOID:
		s = sigmoid(x);
		return s * (1 - s);
	case GN_ACTIVATION_GELU:
		return normal_below(x) + x * (REAL)0.39894228040143268 * EXP((REAL)-0.5 * x * x);
	}
	return 1;
}
