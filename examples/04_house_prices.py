"""A regressor that says which houses it attended to."""

from sklearn.model_selection import train_test_split

from regard import NadarayaWatsonRegressor, data

houses = data.houses(n=400, seed=0)
X_train, X_test, y_train, y_test = train_test_split(houses.X, houses.y, random_state=0)
model = NadarayaWatsonRegressor(bandwidth="scott").fit(X_train, y_train)
print(f"R² on houses it has not seen: {model.score(X_test, y_test):.2f}")

attended = model.attend(X_test[:1], top=3)
print(f"the first answer, {model.predict(X_test[:1])[0]:.0f}, is {attended.mass[0]:.0%} made of:")
for row, weight in zip(attended.index[0], attended.weight[0], strict=True):
    features = ", ".join(f"{name} {x:g}" for name, x in zip(houses.feature_names, X_train[row].round(2), strict=True))
    print(f"  {weight:6.1%} of a house sold for {y_train[row]:.0f} ({features})")
